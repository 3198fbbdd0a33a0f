"""Continuous batching, step by step: who computes what in this step, for how long, and who gets tokens at its end.

The scheduler of vLLM V1 in outline: decoding and half-prefilled sequences first, then the waiting queue in order of
arrival, within ``max_num_batched_tokens`` and ``max_num_seqs``; prompts in chunks (or whole); KV blocks with
recompute preemption of the latest arrival; prefix hits at admission; speculation with accepted lengths drawn per step.

Pure apart from its own random generator: no clock, no I/O. ``engine.py`` turns durations into time.

A step costs O(events), not O(sequences): a decoding sequence is planned to its next chunk (``due``), sums (context,
growth) are carried along. Blocks are therefore taken a chunk ahead of need, and a prompt's blocks all at admission.
"""

from collections import deque
from random import Random

from tools.enginesim.kvpool import KvPool
from tools.enginesim.metrics import Metrics
from tools.enginesim.sequence import Sequence, State
from tools.enginesim.settings import Settings
from tools.enginesim.steptime import StepTime, StepWork

SEGMENT_TOKENS = 64  # a sequence that is not streamed is looked at this often
COLD_SECONDS = 0.12  # compile and capture on first use, per request of the warm-up


class Batcher:
    """One engine core. ``begin_step`` and ``end_step`` alternate; ``submit`` and ``abort`` may come in between."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.time = StepTime(settings)
        self.pool = KvPool(settings.num_gpu_blocks)
        self.random = Random(settings.seed)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        self.prefilling: dict[Sequence, None] = {}
        self.due: dict[int, list[Sequence]] = {}
        self.step = 0
        self.decoding = 0
        self.context = 0.0
        self.growth = 0.0
        self.slowdown = 1.0
        self.cold_left = settings.warmup_requests
        self.drafts_per_step = settings.speculation.tokens if settings.speculation else 0
        self.busy_seconds = 0.0
        self._plan: list[tuple[Sequence, int]] = []
        self._step_tokens = 0
        self._step_seconds = 0.0
        self._step_decodes = 0

    # -- from outside --

    def submit(self, sequence: Sequence) -> None:
        """Queues a request."""
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """The client is gone: the sequence leaves at once and its blocks are free."""
        if sequence.state is State.DONE:
            return
        if sequence.state is State.WAITING:
            self.waiting.remove(sequence)
        else:
            self._leave(sequence)
        sequence.state = State.DONE
        self.metrics.finished["abort"] += 1

    # -- one step --

    def begin_step(self, now: float) -> float | None:
        """Plans a step that starts at ``now``; its duration in seconds, or None when there is nothing to do."""
        budget = self.settings.max_num_batched_tokens - self.decoding * self.time.rows_per_decode
        self._plan = []
        pairs, extra = 0.0, 0.0
        for sequence in self.prefilling:
            chunk = self._chunk(sequence, budget)
            if chunk <= 0:
                continue
            budget -= chunk
            pairs += chunk * (sequence.computed + chunk / 2)
            self._plan.append((sequence, chunk))
        while self.waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            chunk = self._admit(self.waiting[0], budget, now)
            if chunk <= 0:
                break
            sequence = self.waiting.popleft()
            budget -= chunk
            pairs += chunk * (sequence.computed + chunk / 2)
            self._plan.append((sequence, chunk))
            if self.cold_left > 0:
                self.cold_left -= 1
                extra += COLD_SECONDS
        if not self._plan and not self.decoding:
            return None
        prefill = sum(chunk for _, chunk in self._plan)
        self._step_decodes = self.decoding
        self._step_tokens = prefill + self.decoding * self.time.rows_per_decode
        work = StepWork(prefill, pairs, self.decoding, self.context)
        self._step_seconds = (self.time.seconds(work) + extra) * self.slowdown
        self.busy_seconds += self._step_seconds
        return self._step_seconds

    def end_step(self, now: float) -> None:
        """Hands out what the step that ends at ``now`` has produced."""
        self.step += 1
        self.context += self.growth
        self.metrics.iteration_tokens.observe(self._step_tokens)
        if self._step_decodes:
            self.metrics.inter_token.observe(self._step_seconds, self._step_decodes)
        finished_prefills = []
        for sequence, chunk in self._plan:
            if sequence.state is not State.PREFILL:
                continue
            sequence.computed += chunk
            self._publish(sequence)
            if sequence.computed >= sequence.target:
                finished_prefills.append(sequence)
        for sequence in self.due.pop(self.step, ()):
            if sequence.state is State.DECODE and sequence.due_step == self.step:
                self._end_segment(sequence, now)
        for sequence in finished_prefills:
            if sequence.state is State.PREFILL:
                self._first_token(sequence, now)
        if self.decoding == 0:
            self.context = self.growth = 0.0

    # -- prefill --

    def _chunk(self, sequence: Sequence, budget: int) -> int:
        """Prompt tokens of this sequence for this step; 0 when they must wait."""
        remaining = sequence.target - sequence.computed
        threshold = self.settings.long_prefill_token_threshold
        chunk = min(remaining, threshold) if threshold else remaining
        if chunk > budget:
            return budget if self.settings.chunked_prefill else 0
        return chunk

    def _admit(self, sequence: Sequence, budget: int, now: float) -> int:
        """Gives the head of the queue its blocks; the size of its first chunk, or 0 when it does not fit yet."""
        size = self.settings.block_size
        tokens = sequence.prompt_tokens + sequence.generated
        hits = 0
        if self.settings.prefix_caching:
            hits = self.pool.count_hits(sequence.hashes, (tokens - 1) // size)
        new_tokens = tokens - hits * size
        sequence.computed = hits * size
        sequence.target = tokens + int((sequence.work_scale - 1.0) * new_tokens)
        chunk = self._chunk(sequence, budget)
        held = sequence.hashes[:hits]
        new_blocks = -(-tokens // size) - hits
        if chunk <= 0 or new_blocks + self.pool.idle_among(held) > self.pool.free:
            return 0
        self.pool.hold(held)
        self.pool.allocate(new_blocks)
        sequence.held = held
        sequence.published = hits
        sequence.allocated = hits + new_blocks
        sequence.state = State.PREFILL
        self.running[sequence] = None
        self.prefilling[sequence] = None
        if sequence.preemptions == 0:
            sequence.scheduled_at = max(now, sequence.queued_at)
            sequence.cached_tokens = hits * size
            if self.settings.prefix_caching:
                self.metrics.prefix_queries += sequence.prompt_tokens
                self.metrics.prefix_hits += hits * size
        return chunk

    def _publish(self, sequence: Sequence) -> None:
        """Shares the prompt blocks that this chunk has filled."""
        if not self.settings.prefix_caching:
            return
        full = min(sequence.computed // self.settings.block_size, len(sequence.hashes))
        for block in sequence.hashes[sequence.published : full]:
            if self.pool.publish(block):
                sequence.held.append(block)
        sequence.published = max(sequence.published, full)

    def _first_token(self, sequence: Sequence, now: float) -> None:
        del self.prefilling[sequence]
        sequence.state = State.DECODE
        self.decoding += 1
        sequence.generated += 1
        sequence.context = sequence.prompt_tokens + sequence.generated
        self.context += sequence.context
        self.metrics.generation_tokens += 1
        sequence.last_token_at = now
        if sequence.generated == 1:
            sequence.first_token_at = now
            self.metrics.prompt_tokens += sequence.prompt_tokens
            self.metrics.cached_tokens += sequence.cached_tokens
            self.metrics.ttft.observe(now - sequence.arrival)
        self._emit_or_finish(sequence, now)

    # -- decode --

    def _plan_segment(self, sequence: Sequence) -> None:
        """Decides when the next chunk of a decoding sequence is due, and takes the blocks for it."""
        wanted = min(sequence.interval, sequence.output_tokens - sequence.generated)
        steps, tokens = self._accepted(sequence, wanted) if self.drafts_per_step else (wanted, wanted)
        if sequence.work_scale != 1.0:
            steps = max(1, round(steps * sequence.work_scale))
        size = self.settings.block_size
        missing = -(-(sequence.context + tokens) // size) - sequence.allocated
        while missing > 0 and not self.pool.allocate(missing):
            victim = next(reversed(self.running))
            self._preempt(victim)
            if victim is sequence:
                return
        sequence.allocated += max(0, missing)
        sequence.segment_start = self.step
        sequence.segment_tokens = tokens
        sequence.due_step = self.step + steps
        sequence.growth = tokens / steps
        self.growth += sequence.growth
        self.due.setdefault(sequence.due_step, []).append(sequence)

    def _accepted(self, sequence: Sequence, wanted: int) -> tuple[int, int]:
        """Steps until at least ``wanted`` tokens are there, and the tokens: a step gives 1 + the accepted drafts."""
        draw, chance, drafts = self.random.random, sequence.acceptance, self.drafts_per_step
        per_position = self.metrics.accepted_per_position
        steps = tokens = accepted_in_all = 0
        while tokens < wanted:
            accepted = 0
            while accepted < drafts and draw() < chance:
                per_position[accepted] += 1
                accepted += 1
            accepted_in_all += accepted
            tokens += 1 + accepted
            steps += 1
        self.metrics.drafts += steps
        self.metrics.draft_tokens += steps * drafts
        self.metrics.accepted_tokens += accepted_in_all
        return steps, min(tokens, sequence.output_tokens - sequence.generated)

    def _end_segment(self, sequence: Sequence, now: float) -> None:
        self.growth -= sequence.growth
        sequence.growth = 0.0
        sequence.generated += sequence.segment_tokens
        sequence.context += sequence.segment_tokens
        self.metrics.generation_tokens += sequence.segment_tokens
        sequence.last_token_at = now
        self._emit_or_finish(sequence, now)

    def _emit_or_finish(self, sequence: Sequence, now: float) -> None:
        if sequence.generated < sequence.output_tokens:
            self._plan_segment(sequence)
            sequence.emit(sequence, None)
            return
        self._leave(sequence)
        sequence.state = State.DONE
        reason = "stop" if sequence.natural_end else "length"
        self._count_finished(sequence, now, reason)
        sequence.emit(sequence, reason)

    # -- leaving --

    def _leave(self, sequence: Sequence) -> None:
        """Out of the batch, in whatever state; blocks free."""
        del self.running[sequence]
        if sequence.state is State.DECODE:
            self.decoding -= 1
            self.growth -= sequence.growth
            self.context -= sequence.context + sequence.growth * (self.step - sequence.segment_start)
            if self.decoding == 0:
                self.growth = self.context = 0.0
            sequence.growth = 0.0
        else:
            del self.prefilling[sequence]
        self.pool.release(sequence.private, sequence.held)
        sequence.held = []
        sequence.allocated = 0

    def _preempt(self, sequence: Sequence) -> None:
        """No blocks left: the latest arrival gives its own back and will compute everything again."""
        if sequence.state is State.DECODE and sequence.growth:
            done = int(sequence.growth * (self.step - sequence.segment_start))
            done = max(0, min(done, sequence.output_tokens - sequence.generated - 1))
            self._leave(sequence)
            sequence.generated += done
            self.metrics.generation_tokens += done
        else:
            self._leave(sequence)
        sequence.state = State.WAITING
        sequence.computed = 0
        sequence.preemptions += 1
        self.metrics.preemptions += 1
        self.waiting.appendleft(sequence)

    def _count_finished(self, sequence: Sequence, now: float, reason: str) -> None:
        metrics = self.metrics
        decode = now - sequence.first_token_at
        metrics.finished[reason] += 1
        metrics.e2e.observe(now - sequence.arrival)
        metrics.queue.observe(sequence.scheduled_at - sequence.queued_at)
        metrics.prefill.observe(sequence.first_token_at - sequence.scheduled_at)
        metrics.decode.observe(decode)
        metrics.inference.observe(now - sequence.scheduled_at)
        metrics.time_per_output_token.observe(decode / (sequence.generated - 1) if sequence.generated > 1 else 0.0)
        metrics.prompt_lengths.observe(sequence.prompt_tokens)
        metrics.generation_lengths.observe(sequence.generated)
        metrics.params_max_tokens.observe(sequence.max_tokens)
