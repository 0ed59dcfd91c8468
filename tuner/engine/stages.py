"""How a search divides its budget: many configurations for a short while, few for long.

A rung is a length of training and the number of configurations that get so far. The last rung
holds the finals, whose training is that of the model that comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model.common.errors import InputError
from tuner.runs.request import PromotionName, SearchRequest
from tuner.runs.state import RunState, TrialState

# Of a budget, at least, goes into the finals. Twice the examples are worth about .03 of the overall
# score, and what a search finds at equal length not much more (docs/experiments.md).
FINAL_SHARE = 0.75
REDUCTION = 3.0
SHORTEST = 400  # examples; with fewer, configurations can hardly be told apart
EXPLORED = 3  # configurations at the longest rung before the finals, the default among them
ALONE = 6  # where there is one such rung only
MOST_RUNGS = 4  # before the finals
RACING_RUNGS = 3  # with fewer the budget is too small to pay for further seeds
UNPLANNED = 64  # places, as long as nobody knows how many there will be


@dataclass(frozen=True)
class Rung:
    examples: int
    places: int


@dataclass(frozen=True)
class Stages:
    rungs: tuple[Rung, ...]  # shortest first
    promotion: PromotionName = "restart"
    budget: int | None = None  # examples of the whole search, if it has a bound
    race: tuple[int, int] = (0, 0)  # the best N before the finals again, over S further seeds
    distill: bool = False  # one run more, as long as a final, when all is done

    @property
    def top(self) -> int:
        return len(self.rungs) - 1

    @property
    def trials(self) -> int:
        """Configurations that are tried."""
        return self.rungs[0].places

    @property
    def at_once(self) -> int:
        """Trainings that may run side by side, given the room: of one point, its further seeds."""
        best, seeds = self.race
        return max(self.trials, min(best, self.trials) * seeds)

    @property
    def final(self) -> Rung:
        return self.rungs[-1]

    @property
    def finals(self) -> int:
        """Trials that others were tried for; none where all are trained in full."""
        return self.final.places if self.top else 0

    @property
    def most_frozen(self) -> int:
        """Trials that may wait at once, with their states on disk: all that are at a rung, at most,
        as some of them wait until all others there are known."""
        if self.promotion == "restart":
            return 0
        return sum(rung.places for rung in self.rungs[:-1])

    def is_final(self, trial: TrialState) -> bool:
        """One of those that the others were tried for."""
        return self.top > 0 and trial.level == self.top and not trial.is_repeat

    def cost(self) -> int:
        """Examples of training in all."""
        total, before = 0, 0
        for rung in self.rungs:
            total += rung.places * (rung.examples - before)
            before = rung.examples if self.promotion == "continue" else 0
        best, seeds = self.race
        total += best * seeds * (self.rungs[max(0, self.top - 1)].examples)
        return total + self.distill * self.final.examples

    def without(self, trials: int) -> Stages:
        """So many configurations fewer, and for their examples further seeds of the best."""
        tried = max(1, self.trials - trials)
        fewer = tuple(Rung(rung.examples, min(rung.places, tried)) for rung in self.rungs)
        runs = trials * self.rungs[0].examples // self.rungs[max(0, self.top - 1)].examples
        runs += self.race[0] * self.race[1]
        best = max(self.race[0], min(EXPLORED, tried, runs))
        return replace(self, rungs=fewer, race=(best, runs // best) if best else self.race)

    def text(self) -> str:
        """'10 configurations of 330 examples, 3 of 1,000, one final of 5,400'"""
        taught = f", then one taught by them, of {self.final.examples:,}" if self.distill else ""
        if not self.top:
            return f"{self.trials} configurations of {self.final.examples:,} examples{taught}"
        told = [f"{rung.places} of {rung.examples:,}" for rung in self.rungs[:-1]]
        told[0] = f"{self.trials} configurations of {self.rungs[0].examples:,} examples"
        best, seeds = self.race
        if best and seeds:
            again = f"{seeds} further seed{'s' if seeds > 1 else ''}"
            told.append(f"the best {best} again over {again}")
        count = self.final.places
        finals = "one final" if count == 1 else f"{count} finals"
        return ", ".join([*told, f"{finals} of {self.final.examples:,}"]) + taught


def stages_in(state: RunState) -> Stages | None:
    """Those of a run that is there; None if it is from before there were any."""
    if not state.rungs:
        return None
    return Stages(tuple(Rung(*rung) for rung in state.rungs), state.promotion, race=state.race)


FEW_TRIALS = 8  # where their length is given, and neither a budget nor their number


def stages_of(request: SearchRequest, *, examples: int, budget: int | None) -> Stages:
    """What a search does: `examples` of a trial and `budget` are the space's, if not the request's.

    With a number of trials or their length, and no budget, those are what is done. With nothing at
    all the finals are as long as the space's trainings, and that is their share of the budget.
    """
    race = request.confirm
    longest, trials = request.max_examples, request.num_samples
    goals = len(request.objectives)
    # Of several objectives, as many as there are.
    finals = request.finals or (min(goals, trials or goals) if goals > 1 else None)
    if trials is not None and request.finals is not None and request.finals > trials:
        fault = f"--finals {request.finals} is above --num-samples {trials}; lower it"
        raise InputError("search", [fault])
    if not request.early_stopping:
        if request.budget_examples and longest and not trials:
            trials = max(1, request.budget_examples // longest - request.distill)
        trials = trials or FEW_TRIALS
        if request.budget_examples:
            examples = max(1, request.budget_examples // (trials + request.distill))
        stages = in_full(trials, longest or examples, race or (0, 0))
        return within(replace(stages, distill=request.distill), request.budget_examples)
    budget = request.budget_examples or (None if longest or trials else budget)
    if not (budget or longest or trials):
        longest = examples
        budget = round(((finals or 1) + request.distill) * examples / FINAL_SHARE)
    if budget is None:
        stages = for_trials(
            trials or FEW_TRIALS,
            longest or examples,
            shortest=request.grace_examples,
            reduction=request.reduction_factor,
            promotion=request.promotion,
            finals=finals,
            race=race or (0, 0),
        )
        return replace(stages, distill=request.distill)
    stages = for_budget(
        budget,
        trials=trials,
        examples=longest,
        finals=finals,
        shortest=request.grace_examples,
        reduction=request.reduction_factor,
        promotion=request.promotion,
        race=race,
        distill=request.distill,
    )
    grace, shortest, faults = request.grace_examples, stages.rungs[0].examples, []
    if grace is not None and grace > shortest:
        fault = f"--grace-examples is {grace:,}, but the budget of {budget:,} leaves {shortest:,}"
        faults.append(f"{fault} for the shortest training; raise --budget-examples, or lower it")
    return within(stages, budget, faults)


def within(stages: Stages, budget: int | None, faults: Sequence[str] = ()) -> Stages:
    """These stages, if they keep to the budget."""
    found = list(faults)
    if budget is not None and stages.cost() > budget:
        fault = f"{stages.text()} take {stages.cost():,} examples, and the budget is {budget:,}"
        found.insert(0, f"{fault}; raise --budget-examples, or leave one out")
    if found:
        raise InputError("search", found)
    return stages


# --- by the clock -------------------------------------------------------------------------------

RESERVED = 0.2  # of the time: start, evaluations, soup and report
THREADS_HELP = 0.8  # so many times the threads to the power of this is how much faster a run gets


def is_timed(request: SearchRequest, seconds: float | None) -> bool:
    """Whether the time alone says how much is done."""
    given = (request.budget_examples, request.num_samples, request.max_examples)
    return seconds is not None and request.early_stopping and given == (None, None, None)


def before_the_speed_is_known(promotion: PromotionName) -> Stages:
    """Trials of the shortest length, until the first of them has shown how fast they are."""
    return Stages((Rung(SHORTEST, UNPLANNED),), promotion)


def for_time(
    seconds: float,
    pace: float,
    speed: float,
    *,
    slots: int,
    finals: int,
    threads: float = 1.0,
    reduction: float = REDUCTION,
    promotion: PromotionName = "restart",
    race: tuple[int, int] | None = None,
    distill: bool = False,
) -> Stages:
    """What fits into so many seconds.

    `pace` is how many examples a second a short trial gets through, its start and its evaluation
    included; `speed` is that of training alone. `threads` is how many times as many a run has that
    is alone: a lone final, and the distilled one. The shortest rung is what it was before all this
    was known.
    """
    explored = (1 - FINAL_SHARE) / (slots * pace)
    helped = threads**THREADS_HELP
    in_turn = 1 / helped if finals == 1 else -(-finals // slots)  # finals, one after the other
    final = FINAL_SHARE / (finals + distill) * (in_turn + distill / helped) / speed
    budget = max(SHORTEST, int(seconds * (1 - RESERVED) / (explored + final)))
    left, lengths = budget * (1 - FINAL_SHARE), [SHORTEST]
    while left / (len(lengths) + 1) / (longer := lengths[-1] * reduction) >= EXPLORED:
        lengths.append(round(longer))
    if race is None:
        race = (EXPLORED, 1) if len(lengths) >= RACING_RUNGS else (0, 0)
    share = left / (len(lengths) + bool(race[0] and race[1]))
    places = [max(EXPLORED, int(share / length)) for length in lengths]
    top = Rung(max(SHORTEST, int(budget * FINAL_SHARE / (finals + distill))), finals)
    return Stages((*map(Rung, lengths, places), top), promotion, budget, race, distill)


# --- by examples --------------------------------------------------------------------------------


def in_full(trials: int, examples: int, race: tuple[int, int] = (0, 0)) -> Stages:
    """Every configuration is trained to its end."""
    return Stages((Rung(examples, trials),), race=race)


def for_trials(
    trials: int,
    examples: int,
    *,
    shortest: int | None = None,
    reduction: float = REDUCTION,
    promotion: PromotionName = "restart",
    finals: int | None = None,
    race: tuple[int, int] = (0, 0),
) -> Stages:
    """So many configurations, of which the best are trained on so many examples in the end."""
    shortest = shortest or max(1, round(examples / reduction**2))
    lengths = [examples]
    while len(lengths) < trials and lengths[0] / reduction >= shortest - 0.5:
        shorter = round(lengths[0] / reduction)
        if not 0 < shorter < lengths[0]:
            break
        lengths.insert(0, shorter)
    places = [round(trials / reduction**step) for step in range(len(lengths))]
    # Before the finals the default has one of the places, so there are two at least.
    places = [max(2, count) for count in places[:-1]] + [finals or max(1, places[-1])]
    return Stages(tuple(map(Rung, lengths, places)), promotion, race=race)


def for_budget(
    budget: int,
    *,
    trials: int | None = None,
    examples: int | None = None,
    finals: int | None = None,
    shortest: int | None = None,
    reduction: float = REDUCTION,
    promotion: PromotionName = "restart",
    race: tuple[int, int] | None = None,
    distill: bool = False,
) -> Stages:
    """Three quarters or more for the finals; the rungs before them get equal shares of the rest.

    There are as many rungs as keep the shortest one long enough to say something. What is given
    holds, and the rest follows from it.
    """
    given = examples is not None
    if examples is None:
        count = finals or 1
        examples = max(1, int(budget * FINAL_SHARE / (count + distill)))
    else:
        count = finals or max(1, int(budget * FINAL_SHARE / examples) - distill)
    left = max(0, budget - (count + distill) * examples)
    shortest = shortest or SHORTEST
    few = max(EXPLORED, count)  # at the longest rung before the finals
    rungs = 1

    def raced(rungs: int) -> tuple[int, int]:
        return race or ((few, 1) if race is None and rungs >= RACING_RUNGS else (0, 0))

    def share_of(rungs: int) -> float:  # the race takes one as well
        return left / (rungs + all(raced(rungs)))

    while (
        rungs < MOST_RUNGS
        and share_of(rungs + 1) / (few * reduction**rungs) >= shortest
        and (trials is None or trials > few * reduction ** (rungs - 1))  # or there is no contest
    ):
        rungs += 1
    race, share = raced(rungs), share_of(rungs)
    places = [round(few * reduction ** (rungs - 1 - level)) for level in range(rungs)]
    places[0] = trials or (places[0] if rungs > 1 else max(few, min(ALONE, int(share / shortest))))
    lengths = [max(1, min(examples, int(share / count))) for count in places]
    below = [Rung(length, n) for length, n in zip(lengths, places, strict=True) if n]
    kept = [rung for rung in below if rung.examples < examples]
    stages = Stages((*kept, Rung(examples, count)), promotion, budget, race, distill)
    # What goes on from its rung need not do that part again: the finals have the rest.
    spare = max(0, budget - stages.cost()) // (count + distill)
    if promotion == "restart" or given:
        return stages
    return replace(stages, rungs=(*kept, Rung(examples + spare, count)))
