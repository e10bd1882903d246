"""Write the generated parts of the documentation: drawings, and the reference of commands, SQL and Python.

python -m orchestrator.documentation
"""
