"""Work on whole topics with Spark, each a command and a function: `pip install "klamm[spark]"`."""
