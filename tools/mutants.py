"""Make small changes that would let somebody cheat, one at a time, and see that tests notice.

`python tools/mutants.py` copies the tree into a temporary folder for each mutant, changes one piece of text in it
and runs the tests that must fail then. Exit code 1 if a mutant survives. A text that is not found exactly once is
an error, so that the list follows the code; `tests/test_mutants.py` looks at that in every run. Compiled kernels
are copied, too, and compiled anew where a mutant changes their module.

`--only NAME` (again and again) picks some, `--jobs N` runs so many at a time, `--list` prints them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SECONDS = 900.0
_COPIED = (
    "src",
    "tests",
    "benchmarks",
    "tools",
    "examples",
    "docs",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    name: str
    file: str  # below src/hushrec
    text: str  # found exactly once
    instead: str
    tests: str  # as pytest takes them, with blanks between
    breaks: str

    @property
    def path(self) -> Path:
        """The file, below the root of the tree."""
        return Path("src/hushrec") / self.file

    def count(self, root: Path = ROOT) -> int:
        """How often its text is found."""
        path = root / self.path
        return path.read_text(encoding="utf-8").count(self.text) if path.exists() else 0

    def fault(self, root: Path = ROOT) -> str:
        """Why what it makes of its file could not be imported; else nothing."""
        text = (root / self.path).read_text(encoding="utf-8").replace(self.text, self.instead)
        try:
            compile(text, str(self.path), "exec")
        except SyntaxError as error:
            return str(error)
        return ""

    def apply(self, root: Path) -> None:
        """Change the copy."""
        path = root / self.path
        path.write_text(path.read_text(encoding="utf-8").replace(self.text, self.instead), encoding="utf-8")


SURVIVORS = "tests/adversary/test_survivors.py"
SEALING = "tests/privacy/test_sealing.py"
POST = "tests/runtime/test_post.py"
PACKETS = "tests/runtime/test_packets.py"
WIRE = "tests/runtime/test_wire.py"
NODE = "tests/runtime/test_node.py"
NETWORK = "tests/runtime/test_over_network.py"
DENOISING = "tests/privacy/test_denoising.py"
EXACT = "tests/privacy/test_exact_sum.py"
SECURE = "tests/privacy/secure_sum/test_protocol.py"
CHECKPOINT = "tests/runtime/test_checkpoint.py"
IDENTITY = "tests/deploy/test_identity.py"
SITE = "tests/deploy/test_site.py"
SUPERVISOR = "tests/deploy/test_supervisor.py"
LIMITS = "tests/test_limits.py"
REFUSALS = "tests/privacy/secure_sum/test_refusals.py"
REPLIES = "tests/runtime/test_replies.py"
SERVER_LIES = "tests/adversary/test_lying_server.py"
CLIENT_LIES = "tests/adversary/test_lying_client.py"
OWNER_LIES = "tests/adversary/test_lying_owner.py"
PLEDGES = "tests/adversary/test_pledged_owners.py"
MADE_UP = "tests/adversary/test_made_up_numbers.py"
RELATIVES = "tests/adversary/test_revoked_and_copied_kits.py"

MUTANTS = (
    # --- Survivors of an earlier audit -------------------------------------------------------------------------
    Mutant(
        "fsync-dropped", "files.py",
        "                os.fsync(file.fileno())\n", "                pass\n",
        SURVIVORS, "after a power cut a file can be empty that was said to be written",
    ),
    Mutant(
        "server-checks-no-cards", "deploy/driver.py",
        "check_key_card(card, root, bytes.fromhex(self._order.run_id), numbers_digest(numbers[name]))", "pass",
        SURVIVORS, "the server starts a run with a mail key that nobody signed",
    ),
    Mutant(
        "overdrawing-denoiser", "privacy/denoising.py",
        "if not _is_possible(*own, self.uploads.listed(denoiser), limit):", "if False:",
        SURVIVORS, "a denoiser that takes out more than came in spoils the model in silence",
    ),
    Mutant(
        "denoiser-without-mail", "systems/fedrec_plus_plus.py",
        "or not inbox.has_mail(cohort.numbers).all()", "",
        SURVIVORS, "a denoiser to whom nobody wrote shows its own gradients",
    ),
    Mutant(
        "lock-of-noise-sums", "privacy/denoising.py",
        "        with self._lock:\n            self._add(1", "        if True:\n            self._add(1",
        SURVIVORS, "two threads add to one table and lose noise",
    ),
    Mutant(
        "secure-delete-off", "systems/drift/store.py",
        "PRAGMA secure_delete = ON", "PRAGMA secure_delete = OFF",
        SURVIVORS, "interactions that were learned from stay on the owner's disk",
    ),
    Mutant(
        "two-authorization-headers", "serving/gate.py",
        "is not None and len(given) == 1 else None", "is not None and given else None",
        SURVIVORS, "a request passes with one token in front of a proxy and another behind it",
    ),
    Mutant(
        "checkpoint-of-any-shape", "protocol/states.py",
        "if not _is_like(array, own) or", "if False or",
        SURVIVORS, "a checkpoint of another run is taken for one's own",
    ),
    # --- Sealing -----------------------------------------------------------------------------------------------
    Mutant(
        "unpad-ignores-zeros", "privacy/sealing.py",
        "if content.count(0, end) != len(content) - end:", "if False:",
        SEALING, "padding carries what nobody sees",
    ),
    Mutant(
        "onion-layer-not-told-apart", "privacy/sealing.py",
        '_RELAY_SUFFIX = b" relay"', '_RELAY_SUFFIX = b""',
        SEALING, "mail passes for an outer layer, and an outer layer for mail",
    ),
    Mutant(
        "onion-without-core", "privacy/sealing.py",
        "if len(content) < _ADDRESSEE.size + SEAL_BYTES:", "if len(content) < _ADDRESSEE.size:",
        SEALING, "a relay passes on what is no mail",
    ),
    Mutant(
        "padded-mail-of-any-length", "privacy/sealing.py",
        "    if len(content) < _LENGTH.size:\n", "    if False:\n",
        SEALING, "mail of three bytes is a fault of the node that opens it",
    ),
    # --- Post --------------------------------------------------------------------------------------------------
    Mutant(
        "letter-twice", "runtime/post.py",
        'raise SealError("the same letter came twice")', "pass",
        POST, "one client's noise counts twice",
    ),
    Mutant(
        "inside-does-not-fit-outside", "runtime/post.py",
        "if frame.round_number != round_number or (frame.numbers != mail.addressee).any():", "if False:",
        POST, "a letter to one client is added to another's inbox",
    ),
    Mutant(
        "mail-of-two-asks", "runtime/post.py",
        "or sequences.setdefault(mail.code, mail.sequence) != mail.sequence", "",
        POST, "mail of an earlier ask is mixed with that of this one",
    ),
    Mutant(
        "relay-does-not-mix", "runtime/post.py",
        "inner[place], inner[other] = inner[other], inner[place]", "pass",
        POST, "the order of letters tells who wrote them",
    ),
    Mutant(
        "strangers-served", "runtime/post.py",
        "if not is_known or (np.diff(numbers) <= 0).any():", "if not is_known:",
        f"{POST} {NODE}", "a client is asked twice in one request",
    ),
    # --- Packets and frames ------------------------------------------------------------------------------------
    Mutant(
        "packet-padding", "runtime/packets.py",
        "if any(view[end : end + -length % 8]):", "if False:",
        PACKETS, "two packets with other bytes are the same to a node, but not to its mark",
    ),
    Mutant(
        "packet-left-over", "runtime/packets.py",
        "    if start != len(view):\n", "    if False:\n",
        PACKETS, "what stands behind a packet is carried unseen",
    ),
    Mutant(
        "packet-of-any-size", "runtime/packets.py",
        "    if len(data) > max_bytes:\n", "    if False:\n",
        f"{PACKETS} {LIMITS}", "a packet fills the memory of a node",
    ),
    Mutant(
        "reply-to-another-request", "runtime/packets.py",
        "own = (self.run_id, self.round_number, self.sequence)\n        return own == ",
        "own = (self.run_id, self.round_number, request.sequence)\n        return own == ",
        f"{PACKETS} {NETWORK}", "a late reply is taken for one to another ask",
    ),
    Mutant(
        "frame-not-finite", "runtime/wire.py",
        'if kind.dtype.kind == "f" and not _all_finite(values):', "if False:",
        WIRE, "one client's NaN is everybody's",
    ),
    Mutant(
        "frame-below-its-bound", "runtime/wire.py",
        "if kind.low is not None and np.minimum.reduce(values).item() < kind.low:", "if False:",
        WIRE, "an item of number -1 is the last one of the catalogue",
    ),
    Mutant(
        "frame-left-over", "runtime/wire.py",
        "    if len(view) > size:\n", "    if False:\n",
        WIRE, "what stands behind a frame is carried unseen",
    ),
    Mutant(
        "frame-ends-early", "runtime/wire.py",
        "        if end > len(self.view):\n", "        if end > len(self.view) + 4:\n",
        WIRE, "a frame is read beyond its end",
    ),
    Mutant(
        "frame-of-a-party-below-zero", "runtime/wire.py",
        "if num_parties and np.minimum.reduce(numbers) < 0:", "if False:",
        f"{WIRE} {POST}", "a party of number -1 is the last one",
    ),
    Mutant(
        "empty-columns-of-any-width", "runtime/wire.py",
        "if math.prod(size or 1 for size in shape) * dtype.itemsize > max_bytes:", "if False:",
        WIRE, "a frame of some bytes claims rows of a terabyte",
    ),
    # --- Nodes and the driving side ----------------------------------------------------------------------------
    Mutant(
        "frame-of-another-round", "runtime/node.py",
        "if request.round_number != round_number:", "if False:",
        NODE, "a node answers for a round that its packet does not name",
    ),
    Mutant(
        "private-words-leave-the-node", "runtime/node.py",
        'str(error) if isinstance(error, PublicError) else "cannot be used"', "str(error)",
        NODE, "the server reads what an inbox says of a letter",
    ),
    Mutant(
        "reply-of-another-type", "runtime/rounds.py",
        "if type(message) is not self.kind:", "if False:",
        REPLIES, "a reply of another type ends the run",
    ),
    Mutant(
        "reply-of-nobody", "runtime/rounds.py",
        "        if not len(numbers):\n", "        if False:\n",
        REPLIES, "a frame for nobody ends the run",
    ),
    Mutant(
        "answered-for-others", "runtime/over_network.py",
        "if not len(frame.numbers) or not np.array_equal(frame.numbers, asked[first:num_answered]):", "if False:",
        NETWORK, "a node answers in the name of another's clients",
    ),
    # --- Sums --------------------------------------------------------------------------------------------------
    Mutant(
        "row-limit-ignores-summands", "privacy/exact_sum.py",
        "SUM_RANGE / max(num_summands, 1)", "SUM_RANGE",
        EXACT, "many large rows wrap the sum in silence",
    ),
    Mutant(
        "counts-below-zero", "privacy/exact_sum.py",
        "if len(self.counts) and self.counts.min() < 0:", "if False:",
        LIMITS, "a secure sum that somebody spoilt goes into the model",
    ),
    Mutant(
        "gradients-of-another-width", "privacy/exact_sum.py",
        "    if message.gradients.values.shape != shape:\n", "    if False:\n",
        f"{EXACT} {DENOISING}", "a kernel reads beyond the rows that came",
    ),
    Mutant(
        "dense-upload-of-any-shape", "privacy/dense_sum.py",
        "or message.gradients.values.shape[1:] != (num_factors,)", "",
        "tests/privacy/test_dense_sum.py", "a kernel reads beyond the table that came",
    ),
    Mutant(
        "masked-upload-of-any-size", "privacy/masking.py",
        "    if (message.words.lengths != num_columns).any():\n", "    if False:\n",
        "tests/privacy/test_masking.py", "an upload of another size ends the run",
    ),
    Mutant(
        "denoiser-of-another-catalogue", "privacy/denoising.py",
        "(items.values < 0) | (items.values >= num_items) | items.not_ascending()", "items.not_ascending()",
        DENOISING, "a denoiser writes beyond the tables of the server",
    ),
    # --- Secure sums -------------------------------------------------------------------------------------------
    Mutant(
        "unmasked-below-the-threshold", "privacy/secure_sum/parties.py",
        "if len(survivors) < plan.least or num_alive < plan.threshold:", "if False:",
        SECURE, "a participant opens a sum of very few",
    ),
    Mutant(
        "secrets-used-twice", "privacy/secure_sum/attempts.py",
        "if known[place].any() and (known[place] != digest).any():", "if False:",
        SECURE, "two sums with the same masks differ by one participant's numbers",
    ),
    Mutant(
        "steps-in-any-order", "privacy/secure_sum/attempts.py",
        "if place and not known[place - 1].any():", "if False:",
        SECURE, "a participant unmasks a sum that it was never asked for",
    ),
    Mutant(
        "letters-of-another-sum", "privacy/secure_sum/parties.py",
        "if (letters.reader_key.values != own_key).any():", "if False:",
        SECURE, "shares of an earlier attempt are taken for those of this one",
    ),
    Mutant(
        "neighbour-writes-twice", "privacy/secure_sum/letters.py",
        "                if is_same.any():\n", "                if False:\n",
        REFUSALS, "a neighbour's mask is added twice",
    ),
    Mutant(
        "shares-of-any-width", "privacy/secure_sum/server.py",
        "    if sent.shares.values.shape[1] != KEY_BYTES:\n", "    if False:\n",
        REFUSALS, "a participant's shares end the run and blame nobody",
    ),
    Mutant(
        "shares-not-asked-for", "privacy/secure_sum/server.py",
        "    if not is_right.all():\n", "    if False:\n",
        REFUSALS, "a participant opens the sum with shares of somebody else",
    ),
    Mutant(
        "keys-of-any-width", "privacy/secure_sum/server.py",
        "if message.key.values.shape[1:] != (KEY_BYTES,) or is_wrong.any():", "if False:",
        REFUSALS, "a participant's key ends the run and blames nobody",
    ),
    # --- Checkpoints and limits --------------------------------------------------------------------------------
    Mutant(
        "private-state-of-any-shape", "protocol/states.py",
        "if array.shape != own.shape:", "if False:",
        f"{SURVIVORS} {CHECKPOINT}", "one party's vector is everybody's",
    ),
    Mutant(
        "train-of-any-shape", "runtime/checkpoint.py",
        "    if not _are_rows(rows, ", "    if False and not _are_rows(rows, ",
        CHECKPOINT, "items beyond the catalogue are read by kernels",
    ),
    Mutant(
        "claims-are-believed", "limits.py",
        "    if claimed > most:\n", "    if False:\n",
        LIMITS, "a claimed number keeps its hearer busy for ever",
    ),
    Mutant(
        "room-is-endless", "limits.py",
        "    if needed_bytes > room:\n", "    if False:\n",
        LIMITS, "a claimed number fills its hearer's memory",
    ),
    # --- Who is who --------------------------------------------------------------------------------------------
    Mutant(
        "card-of-another-name", "deploy/identity.py",
        "if _common_name(certificate) != card.name:", "if False:",
        IDENTITY, "a node signs the card of another",
    ),
    Mutant(
        "card-of-another-run", "deploy/identity.py",
        "parts = (_CONTEXT, run_id, name.encode", "parts = (_CONTEXT, bytes(16), name.encode",
        IDENTITY, "a card of one run is good for all",
    ),
    Mutant(
        "certificate-of-another-root", "deploy/identity.py",
        "        certificate.verify_directly_issued_by(root)\n", "        pass\n",
        IDENTITY, "anybody makes certificates for anybody",
    ),
    Mutant(
        "certificates-do-not-expire", "deploy/identity.py",
        "if not checked.not_valid_before_utc <= now <= checked.not_valid_after_utc:", "if False:",
        IDENTITY, "a certificate is good for ever",
    ),
    Mutant(
        "key-open-to-all", "deploy/identity.py",
        "        if path.stat().st_mode & 0o077:\n", "        if False:\n",
        IDENTITY, "other users of a machine read a node's mail",
    ),
    Mutant(
        "hosts-twice", "deploy/node_run.py",
        "if len(set(names)) < len(names):", "if False:",
        SITE, "a server lists a node twice, and mail for one goes to the other",
    ),
    Mutant(
        "node-believes-cards", "deploy/node_run.py",
        "check_key_card(host.card, root, run_id, numbers_digest(host.numbers))", "pass",
        SITE, "the server's own key stands for a node's",
    ),
    Mutant(
        "consent-to-any-setting", "deploy/consent.py",
        "if not is_as_wanted(invitation.config.get(name), value):", "if False:",
        SITE, "a node takes part with settings that its owner did not agree to",
    ),
    Mutant(
        "strikes-are-forgotten", "deploy/supervisor.py",
        "self.strikes[name, report.round_number] += 1", "pass",
        SUPERVISOR, "a node spoils a round for ever",
    ),
    Mutant(
        "below-the-least", "deploy/supervisor.py",
        "if len(present) < self.terms.min_nodes:", "if False:",
        SUPERVISOR, "a run goes on with fewer nodes than agreed",
    ),
    # --- Who may ask -------------------------------------------------------------------------------------------
    Mutant(
        "token-of-any-scheme", "serving/limits.py",
        'if scheme.lower() == b"bearer" and any(matches) else None', "if any(matches) else None",
        "tests/serving/test_limits.py", "a token counts in a header of another scheme",
    ),
    Mutant(
        "body-of-any-length", "serving/gate.py",
        "                    if len(body) > self._max_request_bytes:\n", "                    if False:\n",
        "tests/serving/test_gate.py", "a body without a length fills the memory",
    ),
    # --- A server, owners, clients and relatives that lie -------------------------------------------------------
    Mutant(
        "rounds-without-end", "runtime/guard.py",
        "if not 1 <= round_number <= self.limits.num_rounds:", "if False:",
        "tests/runtime/test_guard.py", "a server asks for rounds that nobody agreed to",
    ),
    Mutant(
        "another-v-in-a-round", "runtime/guard.py",
        "if shared.setdefault(name, digest) != digest:", "if False:",
        SERVER_LIES, "a client answers two models in one round, and its ratings follow",
    ),
    Mutant(
        "anybody-is-a-denoiser", "runtime/guard.py",
        "if appointed is not None and not np.isin(numbers, appointed).all():", "if False:",
        SERVER_LIES, "a server makes every client show its gradients as a denoiser",
    ),
    Mutant(
        "a-lone-letter", "runtime/guard.py",
        "if len(digests) < least:", "if False:",
        SERVER_LIES, "a denoiser sums up one client's noise",
    ),
    Mutant(
        "sums-that-differ-by-one", "runtime/guard.py",
        "0 < missing + added < least", "False",
        SERVER_LIES, "two sums of a denoiser show one client's noise",
    ),
    Mutant(
        "models-without-end-in-a-round", "runtime/guard.py",
        "if len(before) == MOST_CONTENTS:", "if False:",
        "tests/runtime/test_guard.py", "a client of FCF answers any number of models in a round",
    ),
    Mutant(
        "declined-for-others", "runtime/over_network.py",
        "and self._host_of[number] == self._names.index(name)", "",
        "tests/adversary/test_declining_denoiser.py", "a node leaves out clients of another",
    ),
    Mutant(
        "vectors-of-any-length", "runtime/guard.py",
        "if not longest <= self.limits.longest:", "if False:",
        SERVER_LIES, "a large V drowns the noise of clients",
    ),
    Mutant(
        "charter-without-signatures", "deploy/charter.py",
        'if not is_signed_by(member, digest, signatures.get(member.name, b"")):', "if False:",
        SERVER_LIES, "a server tells each node of other hosts",
    ),
    Mutant(
        "asked-before-all-signed", "deploy/node_run.py",
        'if self._agreed() is None:\n            raise WireError("an ask',
        'if False:\n            raise WireError("an ask',
        SERVER_LIES, "a node answers before it knows that the others were told the same",
    ),
    Mutant(
        "mail-in-another-name", "runtime/post.py",
        "if mail.writer != name:", "if False:",
        f"{POST} {NETWORK} {SERVER_LIES}", "a node writes in the name of another",
    ),
    Mutant(
        "deeds-without-signatures", "systems/drift/deeds.py",
        "signer.verify(deed.signature, _content(owner, users_side, deed.key, items))", "pass",
        OWNER_LIES, "users encrypt to whom the server says is an owner",
    ),
    Mutant(
        "owners-of-others-items", "systems/drift/deeds.py",
        "if other != owner and np.isin(more, entry.items).any():", "if False:",
        OWNER_LIES, "an owner takes over what others hold",
    ),
    Mutant(
        "deeds-that-were-not-pledged", "systems/drift/deeds.py",
        "if self.pledged is not None and pledge_of(", "if False and pledge_of(",
        PLEDGES, "the first deed that comes in an owner's name is believed",
    ),
    Mutant(
        "anybody-is-the-users-side", "systems/drift/members.py",
        "            owner.users_side = free[0]\n", "            pass\n",
        PLEDGES, "an owner that starts anew gives its key to another owner",
    ),
    Mutant(
        "pledges-not-in-the-charter", "deploy/charter.py",
        "host.names, list(host.card.pledges),", "host.names, [],",
        PLEDGES, "an owner pledges one thing to the users' side and another to the rest",
    ),
    Mutant(
        "pins-forgotten", "systems/fedcore/partners.py",
        "            own.put_into(partner)\n", "            pass\n",
        "tests/adversary/test_lying_partner.py", "a partner that starts anew answers another question",
    ),
    Mutant(
        "budget-overdrawn", "deploy/node_ledger.py",
        "if spent_of(name, [*others, entry]) > most * (1 + _SLACK):", "if False:",
        "tests/deploy/test_node_ledger.py", "runs together spend more than an owner allowed",
    ),
    Mutant(
        "rounds-beyond-the-ledger", "deploy/node_ledger.py",
        "if not 1 <= round_number <= entry.opened.cost.rounds:", "if False:",
        "tests/deploy/test_node_ledger.py", "a run goes on longer than it was charged for",
    ),
    Mutant(
        "revoked-is-welcome", "deploy/membership.py",
        "        revoked.check(certificate)\n", "",
        RELATIVES, "a revoked node takes part",
    ),
    Mutant(
        "copied-kit-is-welcome", "deploy/membership.py",
        'if seen.setdefault(f"{certificate.serial_number:x}", mail_key) != mail_key:', "if False:",
        RELATIVES, "a copy of a kit takes the node's place",
    ),
    Mutant(
        "older-state-goes-on", "deploy/node_run.py",
        "if self.last.round_number < last_round:", "if False:",
        "tests/adversary/test_older_state.py", "a node answers a round again with secrets that were used",
    ),
    Mutant(
        "measured-again", "deploy/node_run.py",
        "if told.order != asked:", "if False:",
        "tests/adversary/test_lying_orders.py", "another measurement is taken for the first",
    ),
    Mutant(
        "sums-of-more-than-there-are", "runtime/guard.py",
        "np.max(getattr(told, _PARTIES), initial=0) > most", "False",
        "tests/adversary/test_lying_sums.py", "a client adds noise for a sum of a million",
    ),
    Mutant(
        "item-listed-twice", "privacy/exact_sum.py",
        "is_wrong = is_unknown | items.not_ascending()", "is_wrong = is_unknown",
        f"{CLIENT_LIES} {EXACT}", "a client votes as often as it likes",
    ),
    Mutant(
        "silence-is-waited-for", "deploy/supervisor.py",
        "for name in (*report.proven, *report.silent):", "for name in report.proven:",
        SUPERVISOR, "a node that never answers ends the run",
    ),
    Mutant(
        "mail-proves-everything", "runtime/calling.py",
        "is_proven = not has_mail or isinstance(error, WireError | MadeUpError)", "is_proven = True",
        CLIENT_LIES, "who sums up a lie of others is left out for it",
    ),
    # --- Numbers that nobody can add up ------------------------------------------------------------------------
    Mutant(
        "made-up-gradients-of-an-owner", "systems/drift/replies.py",
        "is_bad = ~(np.abs(message.gradients.values) <= row_limit(1)).all(axis=1)",
        "is_bad = np.zeros(len(message.gradients.values), np.bool_)",
        MADE_UP, "an owner ends the run of all by gradients that it made up",
    ),
    Mutant(
        "made-up-sums-for-the-users-side", "systems/drift/kept_by_users.py",
        "is_bad = _beyond(message.sums.values, self.limit)",
        "is_bad = _beyond(message.sums.values, 2**63 - 1)",
        MADE_UP, "an owner's sums wrap the vectors of the users",
    ),
    Mutant(
        "made-up-sums-prove-nothing", "runtime/calling.py",
        "isinstance(error, WireError | MadeUpError)", "isinstance(error, WireError)",
        MADE_UP, "an owner that makes up sums breaks rounds off again and again and stays",
    ),
    Mutant(
        "honest-sums-pass-for-a-lie", "systems/drift/kept_by_users.py",
        "if any(_beyond(total.totals, _limit_of(1)).any() for _, total in both):", "if False:",
        MADE_UP, "an owner whose training diverges is left out as a liar",
    ),
    Mutant(
        "made-up-gradients-of-a-partner", "systems/fedcore/mail.py",
        "if not is_addable(own if own.ndim > 1 else own[None], self.num_partners):", "if False:",
        MADE_UP, "a partner ends the training of all by gradients that it made up",
    ),
    Mutant(
        "honest-gradients-pass-for-a-lie", "systems/fedcore/partners.py",
        "if not released.is_addable(len(self.aligned_with)):", "if False:",
        MADE_UP, "a partner whose training diverges is taken for a liar",
    ),
    # --- What nodes remember -----------------------------------------------------------------------------------
    Mutant(
        "a-letter-passed-on-twice", "runtime/guard.py",
        "if len(set(letters)) < len(letters):", "if False:",
        "tests/adversary/test_lying_relay.py", "a server sends a letter twice through a relay and finds it again",
    ),
    Mutant(
        "asks-without-end-through-a-relay", "runtime/guard.py",
        "if len(relayed) > MOST_RELAYED:", "if False:",
        "tests/runtime/test_guard.py", "a server fills a relay's disk with asks to remember",
    ),
    Mutant(
        "errors-are-forgotten", "runtime/node.py",
        "guard.memory = guard.admit_mail(memory, message, numbers, came)",
        "memory = guard.admit_mail(memory, message, numbers, came)",
        SERVER_LIES, "a server tries one V after the other until one is answered",
    ),
    Mutant(
        "errors-are-forgotten-after-a-restart", "deploy/node_run.py",
        "                self._save(node, self.last)\n", "                pass\n",
        SERVER_LIES, "a node that starts anew answers another V after an error",
    ),
    Mutant(
        "masks-of-whatever-was-told", "privacy/secure_sum/masks.py",
        "digest_size=KEY_BYTES, key=self._told, person", "digest_size=KEY_BYTES, person",
        f"{SECURE} tests/adversary/test_lying_sums.py",
        "a server tells some clients of a sum another model and reads the others",
    ),
    Mutant(
        "masks-whatever-is-left-out", "privacy/secure_sum/messages.py",
        "np.array([round_number, num_parties], np.int64), left_out.astype(np.int32)]",
        "np.array([round_number, num_parties], np.int64)]",
        SECURE, "a server has some leave an item out and reads who has it",
    ),
    Mutant(
        "masks-of-any-round", "privacy/secure_sum/messages.py",
        "np.array([round_number, num_parties], np.int64)", "np.array([0, num_parties], np.int64)",
        SECURE, "clients of two rounds are in one sum",
    ),
    Mutant(
        "orders-that-do-not-fit-without-end", "deploy/misfits.py",
        "if len(known) >= MOST_MISFITS and order not in known:", "if False:",
        "tests/adversary/test_lying_orders.py", "a server reads rated items off orders that a node refuses",
    ),
    Mutant(
        "orders-that-do-not-fit-are-forgotten", "deploy/misfits.py",
        "                self._note(order)\n", "                pass\n",
        "tests/adversary/test_lying_orders.py", "a server reads rated items off orders that a node refuses",
    ),
    Mutant(
        "the-same-order-counts-again", "deploy/misfits.py",
        "            if order not in known:\n                self._note(order)",
        "            self._note(os.urandom(8).hex())",
        "tests/adversary/test_lying_orders.py", "an honest server that tries again shuts a node out",
    ),
)  # fmt: skip


def check(mutants: Sequence[Mutant] = MUTANTS, root: Path = ROOT) -> list[str]:
    """What is wrong with the list: names that are there twice, texts that are not found exactly once, no tests."""
    names = [mutant.name for mutant in mutants]
    wrong = [
        f"{name}: there are two of this name" for name in sorted({one for one in names if names.count(one) > 1})
    ]
    for mutant in mutants:
        if (found := mutant.count(root)) != 1:
            wrong.append(f"{mutant.name}: its text is found {found} times in {mutant.path}, not once")
        elif fault := mutant.fault(root):
            wrong.append(f"{mutant.name}: what it makes is no Python: {fault}")
        if mutant.text == mutant.instead:
            wrong.append(f"{mutant.name}: changes nothing")
        missing = [one for one in mutant.tests.split() if not (root / one.partition("::")[0]).exists()]
        wrong += [f"{mutant.name}: there is no {one}" for one in missing]
    return wrong


def copied(folder: Path) -> Path:
    """The tree in a folder, with what was compiled: it is found beside its source, by the time of that."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def run_tests(root: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """The tests of a copy, until one fails, with its own source."""
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests.split()]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def killed(mutant: Mutant) -> tuple[bool, str]:
    """Whether tests fail with the mutant, and the first that does."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = copied(Path(folder))
        mutant.apply(root)
        try:
            finished = run_tests(root, mutant.tests)
        except subprocess.TimeoutExpired:
            return True, f"no end within {_SECONDS:g} s"
    failed = [line for line in finished.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    first = failed[0].partition(" - ")[0] if failed else finished.stdout.strip().splitlines()[-1:]
    # 1: some test failed; below 0: a kernel ended the process. Else it is no verdict: no test was found.
    if finished.returncode > 1:
        return False, f"pytest ended with {finished.returncode}: {first}"
    return finished.returncode != 0, str(first)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not given.only or mutant.name in given.only]
    if given.list:
        for mutant in chosen:
            print(f"{mutant.name:32} {mutant.file:36} {mutant.breaks}")
        return 0
    if wrong := check(chosen):
        print(*wrong, sep="\n")
        return 1
    if unknown := set(given.only) - {mutant.name for mutant in chosen}:
        print(f"no mutant {', '.join(sorted(unknown))}; see --list")
        return 1
    began, survivors = time.monotonic(), 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for mutant, (is_killed, how) in zip(chosen, pool.map(killed, chosen), strict=True):
            survivors += not is_killed
            print(f"{'killed' if is_killed else 'SURVIVED':9} {mutant.name:32} {how}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} survived, {time.monotonic() - began:.0f} s")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
