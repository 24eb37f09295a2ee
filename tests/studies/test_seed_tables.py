"""Tables of means over seeds beside an article's numbers."""

from clearance.records import Record
from clearance.vocabulary import Measurement
from papers.tanay_2018.seed_tables import SeedRow, factor_in_words, table


class TestTables:
    def records(self):
        values = {("low", 0): 1.0, ("low", 1): 3.0, ("high", 0): 2.0, ("high", 1): 6.0}
        return [
            Record("d", method, seed, Measurement("a", "norm", value, "", 3, context={"init": "he"}))
            for (method, seed), value in values.items()
        ]

    def test_means_and_factors_by_hand(self):
        norm = SeedRow("norm", "a", "norm", {}, "1.77")
        low, high = (("low", {"init": "he"}), ("high", {"init": "he"}))
        text = table(self.records(), [norm], {"low": low, "high": high})
        assert "| norm | 2.00 ± 1.41 | 4.00 ± 2.83 | 1.77 |" in text
        assert factor_in_words(self.records(), norm, high, low).startswith("2.0×")
        assert factor_in_words(self.records(), norm, high, ("none", {})) == "no ratio"
        assert "norm |" not in table(self.records(), [SeedRow("norm", "b", "norm")], {"low": low})
