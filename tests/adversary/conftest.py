from collections.abc import Iterator

import pytest
from scene import Scene, set_scene


@pytest.fixture
def scene(plain_dsn: str) -> Iterator[Scene]:
    """An owner of views, who is no superuser, and an attacker beside them."""
    with set_scene(plain_dsn) as scene:
        yield scene


@pytest.fixture
def high(plain_dsn: str) -> Iterator[Scene]:
    """A superuser with views, whom the attacker would like to be."""
    with set_scene(plain_dsn, superuser=True) as scene:
        yield scene
