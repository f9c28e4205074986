"""When the adaptive loops stop (DeepNote, Table 4, Figures 4 and 5; Adaptive-Note, Table 3; Amber, Table 4)."""

import pandas as pd

from rag_notes.config import build_methods
from rag_notes.methods.about import about_of, settings_of
from rag_notes.report.rows import score_rows
from rag_notes.studies.base import Study


class Thresholds(Study):
    """Scores and searches of the adaptive methods by the limits of their loops."""

    def table(self) -> pd.DataFrame:
        """Return the scores with intervals and tests; `setting` has the limits as the papers write them."""
        return self._by_setting(super().table())

    def counts(self) -> pd.DataFrame:
        """Return the mean searches, distinct passages and calls a question with intervals, by `setting`."""
        return self._by_setting(self.means(["searches", "distinct_passages", "calls"]))

    def points(self, metric: str = "f1") -> pd.DataFrame:
        """Return one score of each method in %, and its mean searches a question, both with intervals."""
        searches = self.counts().query("metric == 'searches'").set_index(["dataset", "method"])
        searches = searches[["mean", "low", "high"]].add_prefix("searches_")
        return score_rows(self.table(), metric).join(searches, on=["dataset", "method"])

    def _by_setting(self, table: pd.DataFrame) -> pd.DataFrame:
        varied = {name for settings in self.config.study.variants.values() for name in settings}
        settings = {}
        for name, method in build_methods(self.config).items():
            limits = [limit for limit in about_of(method).limits if limit in varied]
            settings[name] = "-".join(str(settings_of(method)[limit]) for limit in limits)
        setting = table["method"].map(settings)
        table = table.assign(setting=setting.where(setting != "", table["label"]))
        return table.sort_values(["function", "setting"], kind="stable", ignore_index=True)


run = Thresholds.run
