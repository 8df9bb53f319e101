"""Prompts for real weights: prose, code and questions of many lengths, from a handful of tokens to several hundred."""

from __future__ import annotations

_STORY = """\
The lighthouse at Skerry Point had been automatic for thirty years, yet the council still paid a keeper, because \
nobody could agree on who would sign the form to stop. Her name was Ines, and she spent the mornings painting the \
railings, which rusted faster than she could paint, and the afternoons writing down the names of ships. She wrote \
them in a ledger that her predecessor had ruled in pencil, one line for each vessel, with a column for the weather \
and another, always empty, headed "Remarks". On the ninth of October a ship came by that had no name. It was grey and \
rather low, and where the letters should have been there was only a fresh rectangle of paint. Ines looked at it \
through the long glass for as long as it took to cross the bay. Then she opened the ledger, wrote the date, wrote \
"clear, wind from the north-west", and for the first time in her life put something in the last column. She wrote: \
"It slowed down to look at us." That night the telephone rang, which it never did, and a man who said he was from the \
harbour office asked her, very politely, whether she had seen anything unusual. """

_REPORT = """\
Minutes of the water committee, second meeting of the spring. Present: the chair, the treasurer, both engineers and \
nine residents. The first engineer reported that the new pump has run for forty-one days without a fault and that the \
pressure at the upper farms is now within the range that was promised. The old pump has been cleaned and stands ready \
as a spare. The treasurer reported that the repair cost four thousand two hundred, of which the district has repaid \
half; the other half will be taken from the reserve, which then holds six thousand and ninety. A resident asked why \
the bill for the lower street had gone up although the street used less water. The second engineer explained that two \
meters had been read in the wrong order in January, and that the difference will be returned with the next bill. The \
chair apologised for the mistake. The committee then discussed the spring itself. Measurements since the year 1998 \
show that the flow in late summer has fallen by about a fifth, while the flow in winter has hardly changed. The first \
engineer proposed a second basin below the chapel, which would hold enough for eleven dry days. The cost is estimated \
at twenty-eight thousand. Three residents spoke in favour, one against on the ground that the chapel wall is already \
damp. It was agreed that the wall will be examined by a mason before any vote is taken, and that the estimate will be \
split into digging, concrete and pipes so that each part can be offered separately. Under other business, the school \
asked whether the children may paint the door of the pump house. This was granted without discussion. The next \
meeting will be held on the first Tuesday of June, at the usual hour, in the school. In summary, the three decisions \
that were taken at this meeting are as follows. First, the treasurer will return the difference on the bill of the \
lower street. Second, """

_CODE = '''\
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """Half-open interval of integers, from start (included) to stop (excluded)."""

    start: int
    stop: int

    def __contains__(self, value: int) -> bool:
        return self.start <= value < self.stop

    def overlaps(self, other: "Interval") -> bool:
        return self.start < other.stop and other.start < self.stop


def merge(intervals: list[Interval]) -> list[Interval]:
    """Join intervals that overlap or touch, in order of their starts."""
    merged: list[Interval] = []
    for interval in sorted(intervals, key=lambda item: item.start):
        if merged and interval.start <= merged[-1].stop:
            last = merged.pop()
            merged.append(Interval(last.start, max(last.stop, interval.stop)))
        else:
            merged.append(interval)
    return merged


def total_length(intervals: list[Interval]) -> int:
    """Number of integers that lie in at least one of the intervals."""
    return sum('''

PROMPTS: tuple[str, ...] = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Question: A train leaves at nine and arrives at half past eleven. How long is the journey?\nAnswer:",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "Dear Ms. Okafor,\n\nThank you for your letter of the third of May. We have looked into the delay of your parcel"
    " and found that it was sent to our depot in Leeds by mistake. It left there this morning and should reach you by"
    " Friday. We are very sorry for the",
    _CODE,
    _STORY + "Ines thought about the grey ship and answered that",
    _REPORT,
    _STORY * 2 + _REPORT + "the mason will examine the",
)
