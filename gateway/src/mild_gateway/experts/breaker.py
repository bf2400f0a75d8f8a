"""Circuit breakers: an expert that fails is not asked for a while, then tried with a few requests."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from mild_gateway.experts.expert import BreakerSettings

STATES = ("closed", "half-open", "open")
# Requests of one key that half-open circuits let through at a time.
MAX_PROBES = 3
# Keys that are remembered; of each so many calls, or twice as many as open its circuit.
MAX_KEYS = 256
MAX_CALLS = 128


class Circuit:
    """The calls of one key, or of everybody, and since when no more are let through.

    It opens after enough failures, if they are at least half of the last calls in the window. Half-open,
    it lets a few requests of each key through, the probes.
    """

    def __init__(
        self, settings: BreakerSettings, report: Callable[[str], None], whose: str = ""
    ) -> None:
        self._settings = settings
        self._report = report
        self._whose = whose
        self.opened: float | None = None
        # Time, and whether it failed.
        self.calls: deque[tuple[float, bool]] = deque(maxlen=max(MAX_CALLS, 2 * settings.failures))

    def state(self, now: float) -> str:
        """One of ``STATES``."""
        if self.opened is None:
            return "closed"
        return "open" if self.wait(now) else "half-open"

    def wait(self, now: float) -> float:
        """Seconds until requests are let through again."""
        if self.opened is None:
            return 0.0
        return max(0.0, self.opened + self._settings.open_seconds - now)

    def counts(self, now: float) -> tuple[int, int]:
        """Good and failed calls in the window."""
        while self.calls and self.calls[0][0] <= now - self._settings.window_seconds:
            self.calls.popleft()
        bad = sum(failed for _, failed in self.calls)
        return len(self.calls) - bad, bad

    def fail(self, now: float, probing: bool) -> None:
        """Count a failure; what began before the circuit opened says nothing, unless it is a probe."""
        if self.opened is None or probing:
            self.calls.append((now, True))
            good, bad = self.counts(now)
            if probing or bad >= max(self._settings.failures, good):
                self.open(now, f"failed {bad} times in {self._settings.window_seconds:g} s")

    def open(self, now: float, why: str) -> None:
        """Let nothing through for a while."""
        if self.opened is None:
            seconds = self._settings.open_seconds
            self._report(f"{why}{self._whose} and is not asked for {seconds:g} s")
        self.opened = now

    def close(self) -> None:
        """Let everything through."""
        self._report(f"is asked again{self._whose}")
        self.opened = None
        self.calls.clear()


# Circuits of which a call is a probe, and when they had opened.
Probes = list[tuple[Circuit, float]]


class Breaker:
    """A circuit per key, and one for everybody.

    A failure that a request may provoke counts for its key. The circuit for everybody opens if at least
    two keys, and more than half of those that called in the window, see mostly failures, or after enough
    failures that no request provokes. ``report`` is told when a circuit opens or closes.

    >>> breaker = Breaker(BreakerSettings(failures=2, window_seconds=10, open_seconds=5))
    >>> for now in (0.0, 1.0):
    ...     breaker.failed(now, "anna", [], provoked=True)
    >>> breaker.allows(2.0, "anna"), breaker.allows(2.0, "ben"), breaker.state(2.0)
    (False, True, 'closed')
    >>> breaker.succeeded(6.5, "anna", breaker.take("anna"))
    >>> breaker.allows(6.5, "anna")
    True
    """

    def __init__(
        self,
        settings: BreakerSettings,
        report: Callable[[str], None] = lambda change: None,
        has_one_caller: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._report = report
        self._has_one_caller = has_one_caller
        self._everybody = Circuit(settings, report)
        self._keys: OrderedDict[str | None, Circuit] = OrderedDict()
        # The keys of the probes that are under way.
        self._probing: list[str | None] = []

    def state(self, now: float) -> str:
        """The state for everybody; where there is only one caller, that is everybody."""
        shown = [self._everybody]
        if self._has_one_caller():
            shown += self._keys.values()
        return max((circuit.state(now) for circuit in shown), key=STATES.index)

    def open_keys(self, now: float) -> int:
        """Keys for which the expert is not asked, while it is for others."""
        if self.state(now) == "open":
            return 0
        return sum(circuit.state(now) == "open" for circuit in self._keys.values())

    def allows(self, now: float, key: str | None) -> bool:
        """Whether a request of a key would be let through."""
        if self.wait(now, key):
            return False
        is_closed = all(circuit.opened is None for circuit in self._met(key))
        return is_closed or self._probing.count(key) < MAX_PROBES

    def wait(self, now: float, key: str | None) -> float:
        """Seconds until a request of a key may be let through again."""
        return max(circuit.wait(now) for circuit in self._met(key))

    def take(self, key: str | None) -> Probes:
        """Let a request through that is allowed. It must end in one of the three below."""
        probes = [(one, one.opened) for one in self._met(key) if one.opened is not None]
        if probes:
            self._probing.append(key)
        return probes

    def succeeded(self, now: float, key: str | None, probes: Probes) -> None:
        """An answer began."""
        for circuit in self.released(key, probes):
            circuit.close()
            if circuit is self._everybody:
                self._keys.clear()
        for circuit in (self._everybody, self._own(key)):
            if circuit.opened is None:
                circuit.calls.append((now, False))

    def failed(
        self,
        now: float,
        key: str | None,
        probes: Probes,
        *,
        provoked: bool,
        began: float | None = None,
    ) -> None:
        """A request failed, perhaps through its own fault; ``began`` is when its answer did."""
        probing, everybody = self.released(key, probes), self._everybody
        if not provoked:
            everybody.fail(now, everybody in probing)
            return
        own = self._own(key)
        if began is not None and (began, False) in own.calls:
            own.calls.remove((began, False))
        own.fail(now, own in probing)
        good, bad = own.counts(now)
        if bad > good and (everybody.opened is None or everybody in probing):
            self._judge(now)

    def released(self, key: str | None, probes: Probes) -> list[Circuit]:
        """A request ended without telling anything about the expert.

        Returns the circuits whose probe it was, if they neither closed nor opened again meanwhile.
        """
        if probes:
            self._probing.remove(key)
        return [circuit for circuit, opened in probes if circuit.opened == opened]

    def _judge(self, now: float) -> None:
        """Open the circuit for everybody if enough keys see mostly failures."""
        counts = [circuit.counts(now) for circuit in self._keys.values()]
        called = sum(good + bad > 0 for good, bad in counts)
        failing = [bad for good, bad in counts if bad > good]
        enough = self._settings.failures
        # One key brings half of the failures at most.
        total = sum(min(bad, (enough + 1) // 2) for bad in failing)
        if len(failing) >= 2 and 2 * len(failing) > called and total >= enough:
            self._everybody.open(now, f"failed for {len(failing)} of {called} keys")

    def _met(self, key: str | None) -> list[Circuit]:
        """The circuits that a request of a key meets."""
        own = self._keys.get(key)
        return [self._everybody] if own is None else [self._everybody, own]

    def _own(self, key: str | None) -> Circuit:
        """The circuit of a key; that of the key that called least recently makes room."""
        found = self._keys.get(key)
        if found is None:
            whose = " for requests without a key" if key is None else f" for the key {key}"
            found = self._keys[key] = Circuit(self._settings, self._report, whose)
            if len(self._keys) > MAX_KEYS:
                self._keys.popitem(last=False)
        self._keys.move_to_end(key)
        return found
