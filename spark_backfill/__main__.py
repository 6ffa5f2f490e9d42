"""``python -m spark_backfill``, and the entry file of ``spark-submit``."""

from spark_backfill.cli import main

if __name__ == "__main__":
    main()
