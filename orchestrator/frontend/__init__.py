"""From SQL text to an algebra plan: statement splitting, analysis by PostgreSQL, plan building."""
