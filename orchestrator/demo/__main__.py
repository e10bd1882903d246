"""`python -m orchestrator.demo`, which `./run demo` calls."""

from orchestrator.demo import main

if __name__ == "__main__":
    raise SystemExit(main("./run idivm"))
