"""Apache Spark: sessions, bulk loads and initial states."""
