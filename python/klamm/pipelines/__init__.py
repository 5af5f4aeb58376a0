"""Work on whole topics with Spark, each as a command and a function: `pip install "klamm[spark]"`."""
