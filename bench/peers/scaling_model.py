"""What a step of data-parallel training takes by the number of ranks. docs/scaling.md derives it.

Times in microseconds, sizes in bytes.
"""

import dataclasses

import numpy

BACKWARD_SHARE = 2 / 3  # of the time that grows with the batch: two of three matrix products
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # as DdpOptions has them


@dataclasses.dataclass
class Line:
    """alpha + beta * size: a message's latency, and a byte's time."""
    alpha: float
    beta: float


def fit(rows):
    """The Line that makes alpha * a + beta * b nearest to t over rows of (a, b, t), where what counts is
    the error relative to t: sizes span seven decades. Neither is allowed below 0."""
    rows = numpy.array(rows, dtype=float)
    scaled, ones = rows[:, :2] / rows[:, 2:], numpy.ones(len(rows))
    alpha, beta = numpy.linalg.lstsq(scaled, ones, rcond=None)[0]
    if alpha < 0:
        alpha, beta = 0.0, numpy.linalg.lstsq(scaled[:, 1:], ones, rcond=None)[0][0]
    if beta < 0:
        alpha, beta = numpy.linalg.lstsq(scaled[:, :1], ones, rcond=None)[0][0], 0.0
    return Line(float(alpha), float(beta))


def shm_terms(size, ranks):
    """Three rounds, and what passes through a rank's core: it reads its share of everybody's, writes the
    sum, and copies the other shares."""
    return 3, size * (3 - 1 / ranks)


def ring_terms(size, ranks):
    """Reduce-scatter and all-gather round a ring (Thakur et al. 2005)."""
    return 2 * (ranks - 1), 2 * (ranks - 1) / ranks * size


TERMS = {"shm": shm_terms, "gloo": ring_terms}


def on_one_host(line, backend, size, ranks, cores):
    """An all-reduce. Ranks beyond the cores take turns on them."""
    if ranks == 1:
        return 0.0
    a, b = TERMS[backend](size, ranks)
    return (line.alpha * a + line.beta * b) * max(1.0, ranks / cores)


def buckets(sizes):
    """Bytes of each bucket and the part of backward after which it is whole, from the bytes of gradients in
    the order in which they come. A layer's part of backward is its part of the parameters."""
    plan, held, gone, total = [], 0, 0, sum(sizes)
    for size in sizes:
        held, gone = held + size, gone + size
        if held >= (BUCKET if plan else FIRST_BUCKET):
            plan.append((held, gone / total))
            held = 0
    return plan + ([(held, 1.0)] if held else [])


@dataclasses.dataclass
class Work:
    compute: Line  # of one rank's step by its batch
    plan: list  # of buckets()

    def alone(self, batch, slowdown=1.0):
        return slowdown * (self.compute.alpha + self.compute.beta * batch)

    def step(self, batch, all_reduce, slowdown=1.0, hides=True):
        """all_reduce(bytes): its time. One all-reduce at a time runs beside backward, from when its bucket
        is whole; where it `hides` nothing it takes the core from backward."""
        compute = self.alone(batch, slowdown)
        if not hides:
            return compute + sum(all_reduce(size) for size, _ in self.plan)
        backward = BACKWARD_SHARE * slowdown * self.compute.beta * batch
        done = 0.0
        for size, whole in self.plan:
            done = max(done, whole * backward) + all_reduce(size)
        return compute + max(0.0, done - backward)


@dataclasses.dataclass
class Network:
    name: str
    latency: float  # us a message
    gigabits: float  # a second and host, of which nine tenths are data

    @property
    def line(self):
        return Line(self.latency, 8e-3 / (0.9 * self.gigabits))


NETWORKS = [Network("Ethernet of 25 Gb/s, TCP", 30.0, 25.0), Network("200 Gb/s, RDMA", 5.0, 200.0)]


@dataclasses.dataclass
class Cluster:
    """Hosts with a core for each rank, and one that carries the communication."""
    network: Network
    shm: Line
    gloo: Line
    ranks_per_host: int

    def flat(self, size, ranks):
        """One ring over all ranks by gloo. No card makes it faster than it is over loopback, where it copies
        and adds."""
        if ranks <= self.ranks_per_host:
            return on_one_host(self.gloo, "gloo", size, ranks, ranks)
        a, b = ring_terms(size, ranks)
        card = self.network.line
        return (max(card.alpha, self.gloo.alpha) * a +
                max(card.beta + self.gamma / 2, self.gloo.beta) * b)

    def hierarchical(self, size, ranks):
        """In shared memory within each host, and a ring over the hosts, in which each rank sends its share of
        its host's sum."""
        here = min(ranks, self.ranks_per_host)
        inside, hosts = on_one_host(self.shm, "shm", size, here, here), ranks // here
        if hosts == 1:
            return inside
        a, b = ring_terms(size, hosts)
        line = self.network.line
        return inside + line.alpha * a + line.beta * b + self.gamma * (hosts - 1) / hosts * size / here

    @property
    def gamma(self):
        """Of a byte that is added: two reads and a write. A ring adds one for every two that it carries."""
        return 3 * self.shm.beta
