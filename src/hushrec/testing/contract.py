"""What every system owes, whatever it does. A test class for each system: see `SystemContract`."""

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import msgspec
import numpy as np
import pytest

from hushrec import settings
from hushrec.data import synthetic
from hushrec.draws import Draws, Key
from hushrec.errors import HushrecError, MissingExtraError, NewcomerError
from hushrec.privacy.sealing import LETTER_BYTES
from hushrec.protocol import (
    AnySystem,
    Message,
    Ragged,
    Role,
    kept_arrays,
    result_arrays,
)
from hushrec.registry import system_named
from hushrec.runs.suiting import GENERAL
from hushrec.runtime.in_process import Losses, RuntimeOptions
from hushrec.runtime.training import Job, prepared, run_job
from hushrec.runtime.wire import WireError, code_of, decode
from hushrec.testing.board import checkerboard
from hushrec.testing.checks import asking_twice, assert_arrays, assert_equal_messages, assert_same, impossible
from hushrec.testing.small_runs import Finished, finish, finish_on_nodes, letters, settings_for

NUM_ROUNDS = 4
ONE_LINE = r"\A.+\Z"


class SystemContract:
    """The tests of one system. A subclass names it: `class TestToy(SystemContract): system = "toy"`.

    Runs are small: four rounds with `about.small`, on a little data in the hands of the system's parties.
    """

    system: ClassVar[str]
    refuses_losses: ClassVar[bool] = False  # whether a run ends when one of several parties does not answer
    least_learned: ClassVar[float] = 0.95  # of users, where what is withheld from them may be drawn as a negative

    @classmethod
    def _chosen(cls) -> AnySystem:
        return system_named(cls.system)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Tests of what is sent run with the system's variants, too; others with what suits data of no paper."""
        about = self._chosen().about
        if "variant" in metafunc.fixturenames:
            variants = [{}, *about.variants]
            names = ["-".join(str(value) for value in variant.values()) or "small" for variant in variants]
            metafunc.parametrize("variant", variants, ids=names)
        if "suited" in metafunc.fixturenames:
            general = {**about.presets.get(GENERAL, {}), **about.small}
            suited = {"small": {}, **({GENERAL: general} if GENERAL in about.presets else {})}
            metafunc.parametrize("suited", suited.values(), ids=suited)

    def _job(self, seed: int = 0, **values: Any) -> Job:
        system = self._chosen()
        config = system.configure(settings_for(system, NUM_ROUNDS, {**system.about.small, **values}))
        return Job(system, config, seed, prepared(system, system.holders.sample(synthetic(24, 30, 288), 0)))

    def _run(
        self,
        seed: int = 0,
        *,
        threads: int = 1,
        cohort_size: int | None = None,
        losses: Losses | None = None,
        asks_twice: bool = False,
        values: Mapping[str, Any] | None = None,
    ) -> Finished:
        try:
            job = self._job(seed, **(values or {}))
            system = asking_twice(job.system) if asks_twice else job.system
            return _finished(replace(job, system=system), threads, cohort_size, losses)
        except MissingExtraError as error:
            if values:
                pytest.skip(str(error))
            raise

    # --- What it declares ---

    def test_docstring_has_citation_round_threat_model_and_symbols(self) -> None:
        text = sys.modules[self._chosen().config.__module__].__doc__ or ""
        for part in ("The round", "Threat model:", "Symbols:"):
            assert part in text
        assert re.search(r"\((?:[A-Z][\w ]+)?(?:19|20)\d\d\)", text), "a venue and a year, as in (TKDE 2024)"

    def test_every_message_says_what_it_reveals(self) -> None:
        for message in self._chosen().messages:
            assert (message.__doc__ or "").startswith("Reveals:"), message
            assert message.sender in Role
            assert message.receiver in Role

    def test_handlers_and_inboxes_serve_declared_messages(self) -> None:
        system = self._chosen()
        assert set(system.handlers) <= set(system.messages)
        assert set(system.inboxes) <= set(system.messages)
        assert {kind for handler in system.handlers.values() for kind in handler.reads} == set(system.inboxes)
        codes = [code_of(message) for message in system.messages]
        assert len(set(codes)) == len(codes), "two messages look the same on the wire"

    def test_what_is_kept_are_arrays_and_a_result_is_among_them(self) -> None:
        finished = self._run()
        for state in (finished.states[0], finished.states[-1], finished.private):
            for name, array in kept_arrays(state).items():
                assert isinstance(array, np.ndarray), name
        assert result_arrays(finished.states[-1]), "the driving side has a result, be it encrypted"

    # --- Settings ---

    def test_config_round_trips(self) -> None:
        config_type, config = self._chosen().config, self._job().config
        values = settings.to_dict(config)
        assert config != config_type()
        assert settings.build(config_type, values) == config
        assert settings.build(config_type, json.loads(json.dumps(values))) == config
        assert msgspec.json.decode(msgspec.json.encode(config), type=config_type) == config
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        assert settings.build(config_type, tomllib.loads(text)) == config
        assert msgspec.toml.decode(text, type=config_type) == config

    def test_unknown_setting_is_an_error_with_a_hint(self) -> None:
        system = self._chosen()
        name = fields(system.config)[-1].name
        with pytest.raises(HushrecError, match=f"unknown setting {name}x; did you mean {name}"):
            system.configure({f"{name}x": 0.1})
        with pytest.raises(HushrecError, match=rf"unknown setting zzz; known: .*{name}"):
            system.configure({"zzz": 0.1})
        with pytest.raises(HushrecError, match=rf"no preset 'zzz' of {re.escape(system.name)}"):
            system.configure({"preset": "zzz"})

    def test_impossible_settings_are_refused_in_one_line(self) -> None:
        config_type = self._chosen().config
        for entry in fields(config_type):
            for value in impossible(entry, get_type_hints(config_type)[entry.name]):
                with pytest.raises(HushrecError, match=rf"\b{entry.name}=") as refused:
                    self._chosen().configure({entry.name: value})
                assert re.match(ONE_LINE, str(refused.value))

    def test_presets_are_settings(self) -> None:
        """The first preset is what the defaults are; what is typed wins over a preset."""
        system, other = self._chosen(), self._chosen().about.small
        for place, (preset, values) in enumerate(system.about.presets.items()):
            assert (system.configure({"preset": preset}) == system.config()) == (place == 0)
            assert system.configure({"preset": preset}) == system.configure(values)
            assert system.configure({"preset": preset, **other}) == system.configure({**values, **other})

    def test_every_setting_has_a_default_and_a_help_text(self) -> None:
        for entry in fields(self._chosen().config):
            assert entry.default is not MISSING, entry.name
            assert entry.metadata["help"], entry.name

    # --- The same run, whatever it runs on ---

    def test_same_seed_same_transcript_whatever_threads_and_cohorts(self, suited: Mapping[str, Any]) -> None:
        expected = self._run(cohort_size=1, values=suited)
        for threads, cohort_size in ((1, 7), (1, 1000), (1, None), (2, 1), (2, 7), (2, None)):
            assert_same(self._run(threads=threads, cohort_size=cohort_size, values=suited), expected)

    def test_another_seed_gives_another_run_if_anything_is_drawn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn, key = set[str](), Draws.key

        def watched(draws: Draws, purpose: str) -> Key:
            drawn.add(purpose)
            return key(draws, purpose)

        jobs = [self._job(seed) for seed in (0, 1)]
        users = np.arange(jobs[0].train.num_users, dtype=np.int32)
        monkeypatch.setattr(Draws, "key", watched)
        one, other = map(_finished, jobs)
        if not drawn:
            assert_same(one, other)
            return
        for name, array in one.results.items():
            again = other.results[name]
            assert array.shape != again.shape or (array != again).mean() > 0.5, name
        scores, others = one.scorer.score(users), other.scorer.score(users)
        assert (scores != others)[np.isfinite(scores)].mean() > 0.9

    def test_nodes_behind_packets_give_the_same_run(self, tmp_path: Path) -> None:
        """Parties on nodes read files of their own; what they say travels as bytes, mail is sealed."""
        job = self._job()
        expected = _finished(replace(job, config=job.system.in_full(job.config)))
        state, nodes, transcript = finish_on_nodes(job, tmp_path)
        assert_arrays(result_arrays(state), result_arrays(expected.states[-1]))
        num_parties = job.system.holders.num_parties(job.train)
        for name, array in result_arrays(expected.private).items():
            for node in nodes.values():
                own = result_arrays(node.private)[name]
                if len(array) == num_parties:
                    np.testing.assert_array_equal(own, array[node.numbers])
                else:
                    assert own.shape[1:] == array.shape[1:], name
        for (round_number, kind), tally in expected.transcript.tallies.items():
            if kind not in job.system.inboxes:  # a letter has all mail of a node to one party
                found = transcript.tallies[round_number, kind]
                assert (found.messages, found.rows) == (tally.messages, tally.rows), kind

    @pytest.mark.parametrize("last", [1, 3])
    def test_resumed_equals_never_interrupted(self, tmp_path: Path, suited: Mapping[str, Any], last: int) -> None:
        job, options, path = self._job(**suited), RuntimeOptions(threads=1), tmp_path / "state.npz"
        whole = run_job(job, options)

        def interrupt(progress: Any) -> None:
            if progress.round_number == last:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            run_job(job, options, path, interrupt)
        resumed = run_job(job, options, path)
        for ours, theirs in ((resumed.state, whole.state), (resumed.private, whole.private)):
            assert_arrays(kept_arrays(ours), kept_arrays(theirs))
        assert resumed.transcript.tallies == whole.transcript.tallies

    def test_data_of_the_caller_is_not_touched(self) -> None:
        job = self._job()
        rows = job.system.holders.rows(job.train)
        before = {name: array.copy() for name, array in vars(rows).items() if isinstance(array, np.ndarray)}
        _finished(job)
        assert before
        assert_arrays({name: getattr(rows, name) for name in before}, before)

    @pytest.mark.parametrize("cohort_size", [1, None])
    def test_asked_twice_a_party_gives_the_same_reply_and_trains_once(
        self, cohort_size: int | None, suited: Mapping[str, Any]
    ) -> None:
        """As after a lost reply: every ask of the run comes twice, and only the second reply is heard."""
        asked_twice = self._run(cohort_size=cohort_size, asks_twice=True, values=suited)
        assert_same(asked_twice, self._run(cohort_size=cohort_size, values=suited))

    # --- What is sent ---

    def test_mail_that_names_its_writer_says_so(self, variant: Mapping[str, Any]) -> None:
        """Columns with the writer's number are `writer_number()`, so that nodes hold them against signatures."""
        recorded = self._run(values=variant).transcript.recorded
        mail = [sent for sent in recorded if sent.addressees is not None and len(sent.addressees)]
        for kind in {type(sent.message) for sent in mail}:
            batches = [sent for sent in mail if type(sent.message) is kind]
            writers = np.concatenate([sent.writers() for sent in batches])
            for column in kind.kinds():
                if column.layout == "each" and len(np.unique(writers)) > 1:
                    values = np.concatenate([getattr(sent.message, column.name) for sent in batches])
                    assert column.names_writer == np.array_equal(values, writers), f"{kind.__name__}.{column.name}"

    @pytest.mark.parametrize("cohort_size", [1, 7, None])
    def test_messages_survive_the_wire_and_bytes_are_counted_exactly(
        self, variant: Mapping[str, Any], cohort_size: int | None
    ) -> None:
        finished = self._run(cohort_size=cohort_size, values=variant)
        sizes: dict[tuple[int, type[Message]], list[int]] = {}
        for sent in finished.transcript.recorded:
            lengths = [
                column.lengths.tolist() for column in vars(sent.message).values() if isinstance(column, Ragged)
            ]
            assert all(one == lengths[0] for one in lengths), "all ragged columns describe the same rows"
        for (round_number, _, party), sent, frame in letters(finished):
            decoded, is_mail = decode(frame, self._chosen().messages), sent.addressees is not None
            assert_equal_messages(decoded.message, sent.message)
            assert decoded.round_number == round_number
            assert is_mail or decoded.numbers.tolist() == [party]
            size = len(frame) + sent.message.missing_bytes(1) + (LETTER_BYTES if is_mail else 0)
            sizes.setdefault((round_number, type(sent.message)), []).append(size)
        tallies = finished.transcript.tallies.items()
        assert {key: (len(one), sum(one)) for key, one in sizes.items()} == {
            key: (tally.messages, tally.payload_bytes) for key, tally in tallies
        }

    def test_padding_changes_lengths_and_nothing_else(self, tmp_path: Path) -> None:
        """In one process lengths are counted, on nodes they are made; who has no such setting sends as before."""
        if "padding" not in {entry.name for entry in fields(self._chosen().config)}:
            pytest.skip("messages of this system are not padded")
        plain, padded = self._run(), self._run(values={"padding": "powers"})
        assert_arrays(padded.results, plain.results)
        sizes = dict.fromkeys(plain.transcript.tallies, 0)
        for (round_number, _, _), sent, frame in letters(plain):
            kind, size = type(sent.message), len(frame) + sent.message.missing_bytes(1)
            has_rows = any(column.layout == "ragged" for column in kind.kinds())
            seal_bytes = LETTER_BYTES if sent.addressees is not None else 0
            sizes[round_number, kind] += (1 << (size - 1).bit_length() if has_rows else size) + seal_bytes
        assert {key: tally.payload_bytes for key, tally in padded.transcript.tallies.items()} == sizes
        job = self._job(padding="powers")
        expected = _finished(replace(job, config=job.system.in_full(job.config)))
        state, _, _ = finish_on_nodes(job, tmp_path)
        assert_arrays(result_arrays(state), result_arrays(expected.states[-1]))

    def test_garbage_is_refused(self) -> None:
        """A frame that is cut, that goes on, or whose version or type is another."""
        kinds = self._chosen().messages
        frames = {type(letter.sent.message): letter.frame for letter in letters(self._run())}
        assert frames
        for frame in frames.values():
            cut = [frame[:length] for length in range(0, len(frame), 1 + len(frame) // 50)]
            others = [frame[:2] + b"\xff" + frame[3:], frame[:4] + bytes(4) + frame[8:], frame + bytes(4)]
            for garbage in (*cut, *others):
                with pytest.raises(WireError, match=ONE_LINE):
                    decode(garbage, kinds)

    def test_only_declared_messages_are_sent_and_all_of_them(self) -> None:
        """All of them: with the small settings, or with a variant."""
        system, sent = self._chosen(), set[type[Message]]()
        for values in ({}, *system.about.variants):
            sent |= {type(one.message) for one in self._run(values=values).transcript.recorded}
        assert sent == set(system.messages)

    # --- What is learned ---

    def test_a_planted_checkerboards_withheld_item_is_ranked_first(self) -> None:
        """For everybody, or most users where only positives are known. Newcomers are served as well or refused."""
        system = self._chosen()
        if system.about.learns_with is None:
            pytest.skip("a baseline that ranks nothing")
        config = system.configure(settings_for(system, 60, system.about.learns_with))
        board = checkerboard(system)
        finished = _finished(Job(system, config, 0, board.train))
        least = 1.0 if board.train.ratings is not None else self.least_learned
        assert board.ranked_first(finished.scorer.score(board.users)) >= least
        model = system.result.whole(finished.states[-1], finished.private, config, board.train.rating_range)
        try:
            newcomers = [model.fold_in(*board.rated_by(user)) for user in board.users.tolist()]
        except NewcomerError:
            return
        assert board.ranked_first(np.array(newcomers)) >= least

    # --- Who is lost ---

    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_dropped_party_is_survived_or_refused_in_one_line(self, threads: int) -> None:
        """Nothing of it is sent, and what it has stays as it was."""
        job = self._job()
        last = job.system.holders.how_many(job.train) - 1
        losses: Losses = lambda _round, _request, to: to == last  # noqa: E731
        if self.refuses_losses or last == 0:
            with pytest.raises(HushrecError, match=ONE_LINE):
                self._run(threads=threads, losses=losses)
            return
        finished = self._run(threads=threads, losses=losses)
        assert last not in {int(number) for sent in finished.transcript.recorded for number in sent.numbers}
        before, after = result_arrays(job.start().private), result_arrays(finished.private)
        for name, array in before.items():
            if len(array) == job.system.holders.num_parties(job.train):
                np.testing.assert_array_equal(after[name][last], array[last])
        assert all(np.isfinite(array).all() for array in finished.results.values())
        for name, array in result_arrays(finished.states[-1]).items():
            first = result_arrays(finished.states[0])[name]
            assert array.shape != first.shape or (array != first).any(), "the others go on"

    def test_a_user_who_comes_back_is_taken_in_again(self) -> None:
        """Lost in the second round, or in the first if only that one asks."""
        undisturbed = self._run_of_users()
        rounds = {sent.round_number for sent in undisturbed.transcript.recorded}
        last, lost_in = int(undisturbed.transcript.recorded[0].numbers.max()), min(2, max(rounds))
        finished = self._run(losses=lambda number, _request, to: (to == last) & (number == lost_in))
        for name, array in result_arrays(finished.states[-1]).items():
            assert np.isfinite(array).all()
            assert (array != result_arrays(undisturbed.states[-1])[name]).any()
        took_part = {sent.round_number for sent in undisturbed.transcript.recorded if last in sent.numbers}
        answered = {sent.round_number for sent in finished.transcript.recorded if last in sent.numbers}
        assert answered == took_part - {lost_in}

    def test_a_round_without_anyone_changes_nothing(self) -> None:
        undisturbed = self._run_of_users()
        if max(sent.round_number for sent in undisturbed.transcript.recorded) == 1:
            with pytest.raises(HushrecError, match=ONE_LINE):  # there is nothing to learn from
                self._run(losses=lambda _number, _request, to: to >= 0)
            return
        finished = self._run(losses=lambda number, _request, to: (to >= 0) & (number == 3))
        before, after, later = (result_arrays(finished.states[number]) for number in (2, 3, 4))
        assert_arrays(after, before)
        for name, array in later.items():
            assert (array != after[name]).any()

    def _run_of_users(self) -> Finished:
        train = self._job().train
        if self._chosen().holders.how_many(train) < train.num_users:
            pytest.skip("its parties are few; what the loss of one means is the system's own matter")
        return self._run()


def _finished(
    job: Job, threads: int = 1, cohort_size: int | None = None, losses: Losses | None = None
) -> Finished:
    start, draws = job.start(), Draws(job.seed)
    return finish(
        job.system, job.config, draws, start.state, start.private,
        threads=threads, cohort_size=cohort_size, losses=losses,
    )  # fmt: skip
