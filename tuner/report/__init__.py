"""The report, in three steps: figures are collected from a run's folder, drawn, and put on a page.

Nothing here writes into a run but `tuner.report.write.write_report`, and nothing here needs Ray.
"""
