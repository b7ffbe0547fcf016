"""The estimators, as type checkers and editors see them. Made by tools/stubs.py: do not edit."""

from typing import Literal

from hushrec.recommender import Recommender
from hushrec.runtime.in_process import RuntimeOptions

class PMF(Recommender):
    """PMF: all ratings in one place, the baseline.

    Andriy Mnih, Ruslan Salakhutdinov: Probabilistic Matrix Factorization (NIPS 2007).

    Settings:
        preset: named settings, of which others may differ: paper, general; default: general for data of no paper, else paper
        num_factors: length of the vectors (default 20)
        num_rounds: rounds (default 100)
        learning_rate: of the first round (default 0.8)
        decay: what the learning rate is multiplied with after a round (default 0.9)
        regularization: weight of the vectors' squared norms (default 0.001)
        biases: learn a bias of each user and of each item (default False)
        shrinkage: so many ratings' worth of what all have in common is mixed with what a user or an item has (default 0.0)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "general"] | None = None,
        num_factors: int = 20,
        num_rounds: int = 100,
        learning_rate: float = 0.8,
        decay: float = 0.9,
        regularization: float = 0.001,
        biases: bool = False,
        shrinkage: float = 0.0,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class FedRec(Recommender):
    """FedRec: rated items hidden among virtual ones.

    Guanyu Lin, Feng Liang, Weike Pan, Zhong Ming: FedRec: Federated Recommendation with Explicit Feedback (IEEE Intelligent Systems 2020).

    Settings:
        preset: named settings, of which others may differ: paper, general, private; default: general for data of no paper, else paper
        rho: virtual items per rated item (default 3)
        filling: virtual ratings: predicted from some round on, the client's mean, drawn from its own ratings, or none (default 'hybrid')
        resample: when virtual items are drawn (default 'every-round')
        predict_after: virtual ratings are predicted when more rounds are done (T_predict) (default 5)
        predict_after_counts: the rounds that are counted for it: those that the client took part in, or all of the run (default 'own')
        local_steps: gradient steps of the vector that predicts them (T_local) (default 15)
        participation: share of clients that take part in a round (default 1.0)
        num_factors: length of the vectors (default 20)
        num_rounds: rounds (default 100)
        learning_rate: of the first round (default 0.8)
        decay: what the learning rate is multiplied with after a round (default 0.9)
        regularization: weight of the vectors' squared norms (default 0.001)
        update: whether gradients of items use the user's vector before or after its own update (default 'simultaneous')
        user_update: the items that the user's vector learns from (default 'rated-and-virtual')
        biases: learn a bias of each user, which stays private, and of each item (default False)
        shrinkage: so many ratings' worth of what all have in common is mixed with what a user or an item has (default 0.0)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        epsilon_total: of a user in all sums of a run, by noise of the clients; 0: no noise (default 0.0)
        noise_multiplier: deviation of the noise of one sum over clip, instead of epsilon_total (default 0.0)
        delta: of epsilon_total; choose it below 1 / clients (default 1e-05)
        clip: l2 norm that a client's numbers of a sum are scaled down to; 0: what suits the system (default 0.0)
        most_sums: sums that a client takes part in at most; 0: those of all rounds (default 0)
        secure_sums: mask what is uploaded, so that the server sees nothing but the sum (default False)
        secure_masks: make the masks, or count their bytes only; audits and deployments always make them (default 'counted')
        secure_corrupted: share of participants that may work together with the server (default 0.05)
        secure_dropouts: share of participants that may be lost after they sent their keys (default 0.1)
        secure_failure: chance that a round's graph does not keep what it promises for these shares (default 1e-09)
        secure_least: participants below which no sum is unmasked (default 3)
        secure_together: clients that are in the same sums at the least, so that sums differ by no fewer; 0: not looked at (default 0)
        secure_least_raters: clients with a row of an item below which it is left out of a sum; 0: none is (default 0)
        secure_count_noise: deviation of the noise in the counts by which items are left out (default 0.0)
        row_norm: length of a row beyond which clients shorten it and the server refuses it; 0: any (default 0.0)
        robust: what an item moves by: the mean of its rows, or what some liars cannot move far; held: the mean, but items that few have stay near what all have in common (default 'none')
        liars: malicious clients that it withstands; items with hardly more rows stay as they are (default 1)
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "general", "private"] | None = None,
        rho: int = 3,
        filling: Literal["hybrid", "average", "drawn", "none"] = "hybrid",
        resample: Literal["every-round", "once"] = "every-round",
        predict_after: int = 5,
        predict_after_counts: Literal["own", "all"] = "own",
        local_steps: int = 15,
        participation: float = 1.0,
        num_factors: int = 20,
        num_rounds: int = 100,
        learning_rate: float = 0.8,
        decay: float = 0.9,
        regularization: float = 0.001,
        update: Literal["simultaneous", "sequential"] = "simultaneous",
        user_update: Literal["rated-and-virtual", "rated"] = "rated-and-virtual",
        biases: bool = False,
        shrinkage: float = 0.0,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        epsilon_total: float = 0.0,
        noise_multiplier: float = 0.0,
        delta: float = 1e-05,
        clip: float = 0.0,
        most_sums: int = 0,
        secure_sums: bool = False,
        secure_masks: Literal["counted", "real"] = "counted",
        secure_corrupted: float = 0.05,
        secure_dropouts: float = 0.1,
        secure_failure: float = 1e-09,
        secure_least: int = 3,
        secure_together: int = 0,
        secure_least_raters: int = 0,
        secure_count_noise: float = 0.0,
        row_norm: float = 0.0,
        robust: Literal["none", "trimmed", "median", "krum", "held"] = "none",
        liars: int = 1,
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class FedRecPlusPlus(Recommender):
    """FedRec++: virtual items, and denoisers who take their noise out again.

    Feng Liang, Weike Pan, Zhong Ming: FedRec++: Lossless Federated Recommendation with Explicit Feedback (AAAI 2021).

    Settings:
        preset: named settings, of which others may differ: paper, general; default: general for data of no paper, else paper
        rho: virtual items per rated item (default 3)
        filling: virtual ratings: predicted from some round on, the client's mean, drawn from its own ratings, or none (default 'hybrid')
        resample: when virtual items are drawn (default 'every-round')
        predict_after: virtual ratings are predicted when more rounds are done (T_predict) (default 5)
        predict_after_counts: the rounds that are counted for it: those that the client took part in, or all of the run (default 'own')
        local_steps: gradient steps of the vector that predicts them (T_local) (default 15)
        participation: share of clients that take part in a round (default 1.0)
        num_factors: length of the vectors (default 20)
        num_rounds: rounds (default 100)
        learning_rate: of the first round (default 0.8)
        decay: what the learning rate is multiplied with after a round (default 0.9)
        regularization: weight of the vectors' squared norms (default 0.001)
        update: whether gradients of items use the user's vector before or after its own update (default 'simultaneous')
        user_update: the items that the user's vector learns from; without loss it learns from rated ones only (default 'rated')
        biases: learn a bias of each user, which stays private, and of each item (default False)
        shrinkage: so many ratings' worth of what all have in common is mixed with what a user or an item has (default 0.0)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        row_norm: length of a row beyond which clients shorten it and the server refuses it; 0: any (default 0.0)
        robust: whether items that few clients have are held near what all items have in common (default 'none')
        liars: malicious clients that it withstands; items with hardly more rows stay as they are (default 1)
        denoisers: clients that collect noise (eta); 0 leaves the noise in (default 1)
        assignment: how clients get their denoisers: dealt evenly, or each at random (default 'dealt')
        shares: denoisers of each client, whose shares of masks tell nothing but all together (k); 0: one, with noise (default 0)
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "general"] | None = None,
        rho: int = 3,
        filling: Literal["hybrid", "average", "drawn", "none"] = "hybrid",
        resample: Literal["every-round", "once"] = "every-round",
        predict_after: int = 5,
        predict_after_counts: Literal["own", "all"] = "own",
        local_steps: int = 15,
        participation: float = 1.0,
        num_factors: int = 20,
        num_rounds: int = 100,
        learning_rate: float = 0.8,
        decay: float = 0.9,
        regularization: float = 0.001,
        update: Literal["simultaneous", "sequential"] = "simultaneous",
        user_update: Literal["rated-and-virtual", "rated"] = "rated",
        biases: bool = False,
        shrinkage: float = 0.0,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        row_norm: float = 0.0,
        robust: Literal["none", "held"] = "none",
        liars: int = 1,
        denoisers: int = 1,
        assignment: Literal["dealt", "random"] = "dealt",
        shares: int = 0,
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class FedRecBPR(Recommender):
    """FedRec-BPR: FedRec++ that ranks, with virtual pairs, and denoisers who take their noise out again.

    Feng Liang, Weike Pan, Zhong Ming: FedRec++: Lossless Federated Recommendation with Explicit Feedback (AAAI 2021).

    Settings:
        preset: named settings, of which others may differ: usual, general; default: general for data of no paper, else usual
        epsilon_total: of a user in all sums of a run, by noise of the clients; 0: no noise (default 0.0)
        noise_multiplier: deviation of the noise of one sum over clip, instead of epsilon_total (default 0.0)
        delta: of epsilon_total; choose it below 1 / clients (default 1e-05)
        clip: l2 norm that a client's numbers of a sum are scaled down to; 0: what suits the system (default 0.0)
        most_sums: sums that a client takes part in at most; 0: those of all rounds (default 0)
        secure_sums: mask what is uploaded, so that the server sees nothing but the sum (default False)
        secure_masks: make the masks, or count their bytes only; audits and deployments always make them (default 'counted')
        secure_corrupted: share of participants that may work together with the server (default 0.05)
        secure_dropouts: share of participants that may be lost after they sent their keys (default 0.1)
        secure_failure: chance that a round's graph does not keep what it promises for these shares (default 1e-09)
        secure_least: participants below which no sum is unmasked (default 3)
        secure_together: clients that are in the same sums at the least, so that sums differ by no fewer; 0: not looked at (default 0)
        rho: virtual pairs per real pair (default 3)
        denoisers: clients that collect noise (eta); 0 leaves the noise in (default 1)
        assignment: how clients get their denoisers: dealt evenly, or each at random (default 'dealt')
        shares: denoisers of each client, whose shares of masks tell nothing but all together (k); 0: one, with noise (default 0)
        negatives: items that each item of a client is ranked above (default 2)
        looks: unrated items looked at for each virtual item, to find one that can stand for a real one (default 30)
        participation: share of clients that take part in a round (default 1.0)
        num_factors: length of the vectors (default 32)
        num_rounds: rounds (default 100)
        learning_rate: of the server's Adam (default 0.02)
        bias_pace: how much faster the items' biases go: they have a longer way (default 10.0)
        from_popularity: count in round 1 how many clients have each item, and start the biases there (default False)
        user_steps: steps by which a client solves for its vector (default 10)
        regularization: weight of the vectors' squared norms; biases are free (default 1.0)
        crowding: how much more a client's vector is held back, the more of all items it has (default 0.0)
        initial_scale: items' vectors start uniformly within plus and minus this (default 0.1)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["usual", "general"] | None = None,
        epsilon_total: float = 0.0,
        noise_multiplier: float = 0.0,
        delta: float = 1e-05,
        clip: float = 0.0,
        most_sums: int = 0,
        secure_sums: bool = False,
        secure_masks: Literal["counted", "real"] = "counted",
        secure_corrupted: float = 0.05,
        secure_dropouts: float = 0.1,
        secure_failure: float = 1e-09,
        secure_least: int = 3,
        secure_together: int = 0,
        rho: int = 3,
        denoisers: int = 1,
        assignment: Literal["dealt", "random"] = "dealt",
        shares: int = 0,
        negatives: int = 2,
        looks: int = 30,
        participation: float = 1.0,
        num_factors: int = 32,
        num_rounds: int = 100,
        learning_rate: float = 0.02,
        bias_pace: float = 10.0,
        from_popularity: bool = False,
        user_steps: int = 10,
        regularization: float = 1.0,
        crowding: float = 0.0,
        initial_scale: float = 0.1,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class SDCF(Recommender):
    """SDCF: randomised response and Langevin noise.

    Jyun-Yu Jiang, Cheng-Te Li, Shou-De Lin: Towards a more reliable privacy-preserving recommender system (Information Sciences 2019).

    Settings:
        flip: chance that an item's permanent bit is a fair coin (f) (default 0.1)
        report_if_set: chance to report an item whose permanent bit is set (q) (default 0.75)
        report_if_unset: chance to report an item whose permanent bit is not set (p) (default 0.02)
        temperature: factor on the deviation of the Langevin noise; 1 as published (default 0.1)
        prior_shape: shape of the Gamma prior of Lambda (default 2.0)
        prior_scale: scale of the Gamma prior of Lambda (default 0.05)
        prior_seed: of Lambda, which server and clients all know (default 0)
        participation: share of clients that take part in a round (default 1.0)
        num_factors: length of the vectors (default 20)
        num_rounds: rounds (default 100)
        learning_rate: of the first round (default 0.0015)
        decay: what the learning rate is multiplied with after a round (default 0.99)
        regularization: for newcomers whose vector is folded in (default 0.001)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        epsilon_total: of a user in all sums of a run, by noise of the clients; 0: no noise (default 0.0)
        noise_multiplier: deviation of the noise of one sum over clip, instead of epsilon_total (default 0.0)
        delta: of epsilon_total; choose it below 1 / clients (default 1e-05)
        clip: l2 norm that a client's numbers of a sum are scaled down to; 0: what suits the system (default 0.0)
        most_sums: sums that a client takes part in at most; 0: those of all rounds (default 0)
        secure_sums: mask what is uploaded, so that the server sees nothing but the sum (default False)
        secure_masks: make the masks, or count their bytes only; audits and deployments always make them (default 'counted')
        secure_corrupted: share of participants that may work together with the server (default 0.05)
        secure_dropouts: share of participants that may be lost after they sent their keys (default 0.1)
        secure_failure: chance that a round's graph does not keep what it promises for these shares (default 1e-09)
        secure_least: participants below which no sum is unmasked (default 3)
        secure_together: clients that are in the same sums at the least, so that sums differ by no fewer; 0: not looked at (default 0)
        secure_least_raters: clients with a row of an item below which it is left out of a sum; 0: none is (default 0)
        secure_count_noise: deviation of the noise in the counts by which items are left out (default 0.0)
        row_norm: length of a row beyond which clients shorten it and the server refuses it; 0: any (default 0.0)
        robust: what an item moves by: the mean of its rows, or what some liars cannot move far; held: the mean, but items that few have stay near what all have in common (default 'none')
        liars: malicious clients that it withstands; items with hardly more rows stay as they are (default 1)
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        flip: float = 0.1,
        report_if_set: float = 0.75,
        report_if_unset: float = 0.02,
        temperature: float = 0.1,
        prior_shape: float = 2.0,
        prior_scale: float = 0.05,
        prior_seed: int = 0,
        participation: float = 1.0,
        num_factors: int = 20,
        num_rounds: int = 100,
        learning_rate: float = 0.0015,
        decay: float = 0.99,
        regularization: float = 0.001,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        epsilon_total: float = 0.0,
        noise_multiplier: float = 0.0,
        delta: float = 1e-05,
        clip: float = 0.0,
        most_sums: int = 0,
        secure_sums: bool = False,
        secure_masks: Literal["counted", "real"] = "counted",
        secure_corrupted: float = 0.05,
        secure_dropouts: float = 0.1,
        secure_failure: float = 1e-09,
        secure_least: int = 3,
        secure_together: int = 0,
        secure_least_raters: int = 0,
        secure_count_noise: float = 0.0,
        row_norm: float = 0.0,
        robust: Literal["none", "trimmed", "median", "krum", "held"] = "none",
        liars: int = 1,
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class SDCFDenoised(Recommender):
    """SDCF denoised: SDCF with FedRec++'s denoisers.

    Feng Liang, Weike Pan, Zhong Ming: FedRec++: Lossless Federated Recommendation with Explicit Feedback (AAAI 2021).

    Settings:
        flip: chance that an item's permanent bit is a fair coin (f) (default 0.1)
        report_if_set: chance to report an item whose permanent bit is set (q) (default 0.75)
        report_if_unset: chance to report an item whose permanent bit is not set (p) (default 0.02)
        temperature: factor on the deviation of the Langevin noise; 1 as published (default 0.1)
        prior_shape: shape of the Gamma prior of Lambda (default 2.0)
        prior_scale: scale of the Gamma prior of Lambda (default 0.05)
        prior_seed: of Lambda, which server and clients all know (default 0)
        participation: share of clients that take part in a round (default 1.0)
        num_factors: length of the vectors (default 20)
        num_rounds: rounds (default 100)
        learning_rate: of the first round (default 0.0015)
        decay: what the learning rate is multiplied with after a round (default 0.99)
        regularization: for newcomers whose vector is folded in (default 0.001)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        row_norm: length of a row beyond which clients shorten it and the server refuses it; 0: any (default 0.0)
        robust: whether items that few clients have are held near what all items have in common (default 'none')
        liars: malicious clients that it withstands; items with hardly more rows stay as they are (default 1)
        denoisers: clients that collect noise (eta); 0 leaves the noise in (default 1)
        assignment: how clients get their denoisers: dealt evenly, or each at random (default 'dealt')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        flip: float = 0.1,
        report_if_set: float = 0.75,
        report_if_unset: float = 0.02,
        temperature: float = 0.1,
        prior_shape: float = 2.0,
        prior_scale: float = 0.05,
        prior_seed: int = 0,
        participation: float = 1.0,
        num_factors: int = 20,
        num_rounds: int = 100,
        learning_rate: float = 0.0015,
        decay: float = 0.99,
        regularization: float = 0.001,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        row_norm: float = 0.0,
        robust: Literal["none", "held"] = "none",
        liars: int = 1,
        denoisers: int = 1,
        assignment: Literal["dealt", "random"] = "dealt",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class PTFFedRec(Recommender):
    """PTF-FedRec: predictions instead of parameters, the server's model stays hidden.

    Wei Yuan, Chaoqun Yang, Liang Qu, Quoc Viet Hung Nguyen, Jianxin Li, Hongzhi Yin: Hide Your Model: A Parameter Transmission-free Federated Recommender System (ICDE 2024).

    Settings:
        preset: named settings, of which others may differ: paper, released, fitted, general; default: general for data of no paper, else paper
        client_model: the clients' model (F_c) (default 'neumf')
        server_model: the server's model (F_s), which clients never learn (default 'ngcf')
        defense: what is done to an upload (default 'sampling+swapping')
        least_beta: least share of its positives that a client shows (default 0.1)
        most_beta: largest share of its positives that a client shows (default 1.0)
        least_gamma: least number of negatives shown per positive (default 1.0)
        most_gamma: largest number of negatives shown per positive (default 4.0)
        swap_share: share of the shown positives whose scores are swapped (lambda) (default 0.1)
        swap_rounding: of the number of swapped pairs; down, but to no less than one, as the authors' code does (default 'chance')
        unsampled: with the defense none or ldp: show own samples, or draw the negatives from all trained, told ones too (default 'own')
        uploads: how a client draws what it shows: anew in each round; of its own samples once for the run; or of these anew, each equally often (default 'rounds')
        score_levels: shown scores are rounded to so many levels from 0 to 1; 0: as they are (default 0)
        laplace_scale: of the noise on scores, for the defense ldp (default 0.6)
        num_told: items that the server tells a client (alpha) (default 30)
        confident_share: share of these that are the most updated items (mu) (default 0.5)
        dispersal: how the server chooses; what is left out is drawn at random (default 'confidence+hard')
        participation: share of clients that take part in a round (default 1.0)
        num_rounds: rounds (default 20)
        num_negatives: negatives per positive that a client trains on (default 4)
        negatives: when a client draws its negatives: for the whole run, or anew in each round (default 'once')
        repeats: whether a client's negatives may repeat, drawn and shown (default 'no')
        memory: what becomes of what the server told before (default 'replace')
        told_limit: whether a client drops what exceeds the number of its positives (default 'none')
        client_factors: length of the vectors of the clients' models (default 32)
        client_layers: widths of the clients' dense layers (default (32, 16))
        client_graph_layers: graph layers of a client's NGCF or LightGCN (default 3)
        client_learning_rate: of the clients' Adam (default 0.001)
        client_batch: batch size of the clients (default 64)
        local_epochs: epochs of a client in a round (default 5)
        server_factors: length of the vectors of the server's model (default 32)
        server_layers: widths of the server's dense layers (default (32, 16))
        server_graph_layers: graph layers of the server's NGCF or LightGCN (default 3)
        server_head: how a LightGCN server scores (default 'product')
        message_dropout: share of messages that NGCF drops in training (default 0.1)
        server_learning_rate: of the server's Adam (default 0.001)
        server_batch: batch size of the server (default 1024)
        server_epochs: epochs of the server in a round (default 2)
        from_popularity: the server's model starts at how much was shown of each item, and learns who differs (default False)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "released", "fitted", "general"] | None = None,
        client_model: Literal["neumf", "ngcf", "lightgcn"] = "neumf",
        server_model: Literal["neumf", "ngcf", "lightgcn"] = "ngcf",
        defense: Literal["sampling+swapping", "sampling", "ldp", "none"] = "sampling+swapping",
        least_beta: float = 0.1,
        most_beta: float = 1.0,
        least_gamma: float = 1.0,
        most_gamma: float = 4.0,
        swap_share: float = 0.1,
        swap_rounding: Literal["chance", "down"] = "chance",
        unsampled: Literal["own", "trained"] = "own",
        uploads: Literal["rounds", "once", "balanced"] = "rounds",
        score_levels: int = 0,
        laplace_scale: float = 0.6,
        num_told: int = 30,
        confident_share: float = 0.5,
        dispersal: Literal["confidence+hard", "confidence", "hard", "random"] = "confidence+hard",
        participation: float = 1.0,
        num_rounds: int = 20,
        num_negatives: int = 4,
        negatives: Literal["once", "rounds"] = "once",
        repeats: Literal["no", "yes"] = "no",
        memory: Literal["replace", "accumulate"] = "replace",
        told_limit: Literal["none", "positives"] = "none",
        client_factors: int = 32,
        client_layers: tuple[int, ...] = (32, 16),
        client_graph_layers: int = 3,
        client_learning_rate: float = 0.001,
        client_batch: int = 64,
        local_epochs: int = 5,
        server_factors: int = 32,
        server_layers: tuple[int, ...] = (32, 16),
        server_graph_layers: int = 3,
        server_head: Literal["product", "mlp"] = "product",
        message_dropout: float = 0.1,
        server_learning_rate: float = 0.001,
        server_batch: int = 1024,
        server_epochs: int = 2,
        from_popularity: bool = False,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class FCF(Recommender):
    """FCF: gradients of all items to the server, for implicit feedback.

    Muhammad Ammad-ud-din, Elena Ivannikova, Suleiman A. Khan, Were Oyomno, Qiang Fu, Kuan Eeik Tan, Adrian Flanagan: Federated Collaborative Filtering for Privacy-Preserving Personalized Recommendation System (arXiv 2019).

    Settings:
        preset: named settings, of which others may differ: paper, tuned, general; default: general for data of no paper, else paper
        epsilon_total: of a user in all sums of a run, by noise of the clients; 0: no noise (default 0.0)
        noise_multiplier: deviation of the noise of one sum over clip, instead of epsilon_total (default 0.0)
        delta: of epsilon_total; choose it below 1 / clients (default 1e-05)
        clip: l2 norm that a client's numbers of a sum are scaled down to; 0: what suits the system (default 0.0)
        most_sums: sums that a client takes part in at most; 0: those of all rounds (default 0)
        secure_sums: mask what is uploaded, so that the server sees nothing but the sum (default False)
        secure_masks: make the masks, or count their bytes only; audits and deployments always make them (default 'counted')
        secure_corrupted: share of participants that may work together with the server (default 0.05)
        secure_dropouts: share of participants that may be lost after they sent their keys (default 0.1)
        secure_failure: chance that a round's graph does not keep what it promises for these shares (default 1e-09)
        secure_least: participants below which no sum is unmasked (default 3)
        secure_together: clients that are in the same sums at the least, so that sums differ by no fewer; 0: not looked at (default 0)
        row_norm: length of a row beyond which clients shorten it and the server refuses it; 0: any (default 0.0)
        robust: what an item moves by: the mean of its rows, or what some liars cannot move far; held: the mean, but items that few have stay near what all have in common (default 'none')
        liars: malicious clients that it withstands; items with hardly more rows stay as they are (default 1)
        num_factors: length of the vectors (default 32)
        num_rounds: rounds (default 20)
        participation: share of clients that take part in a round (default 1.0)
        clients_per_step: clients whose gradients make one step of the server (Theta); 0: all (default 0)
        confidence: how much more a positive counts than another item (alpha) (default 4.0)
        learning_rate: of Adam (default 0.001)
        first_decay: of Adam's mean of gradients (beta_1) (default 0.1)
        second_decay: of Adam's mean of squared gradients (beta_2) (default 0.99)
        regularization: weight of the vectors' squared norms (lambda) (default 1.0)
        initial_scale: items' vectors start uniformly within plus and minus this (default 0.1)
        from_popularity: count in round 1 how many clients have each item, and start the first column of vectors there (default False)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "tuned", "general"] | None = None,
        epsilon_total: float = 0.0,
        noise_multiplier: float = 0.0,
        delta: float = 1e-05,
        clip: float = 0.0,
        most_sums: int = 0,
        secure_sums: bool = False,
        secure_masks: Literal["counted", "real"] = "counted",
        secure_corrupted: float = 0.05,
        secure_dropouts: float = 0.1,
        secure_failure: float = 1e-09,
        secure_least: int = 3,
        secure_together: int = 0,
        row_norm: float = 0.0,
        robust: Literal["none", "trimmed", "median", "krum", "held"] = "none",
        liars: int = 1,
        num_factors: int = 32,
        num_rounds: int = 20,
        participation: float = 1.0,
        clients_per_step: int = 0,
        confidence: float = 4.0,
        learning_rate: float = 0.001,
        first_decay: float = 0.1,
        second_decay: float = 0.99,
        regularization: float = 1.0,
        initial_scale: float = 0.1,
        from_popularity: bool = False,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class FedMF(Recommender):
    """FedMF: item vectors under homomorphic encryption.

    Di Chai, Leye Wang, Kai Chen, Qiang Yang: Secure Federated Matrix Factorization (IEEE Intelligent Systems 2020).

    Settings:
        preset: named settings, of which others may differ: paper, tuned, general; default: general for data of no paper, else paper
        epsilon_total: of a user in all sums of a run, by noise of the clients; 0: no noise (default 0.0)
        noise_multiplier: deviation of the noise of one sum over clip, instead of epsilon_total (default 0.0)
        delta: of epsilon_total; choose it below 1 / clients (default 1e-05)
        clip: l2 norm that a client's numbers of a sum are scaled down to; 0: what suits the system (default 0.0)
        most_sums: sums that a client takes part in at most; 0: those of all rounds (default 0)
        secure_sums: mask what is uploaded, so that the server sees nothing but the sum (default False)
        secure_masks: make the masks, or count their bytes only; audits and deployments always make them (default 'counted')
        secure_corrupted: share of participants that may work together with the server (default 0.05)
        secure_dropouts: share of participants that may be lost after they sent their keys (default 0.1)
        secure_failure: chance that a round's graph does not keep what it promises for these shares (default 1e-09)
        secure_least: participants below which no sum is unmasked (default 3)
        secure_together: clients that are in the same sums at the least, so that sums differ by no fewer; 0: not looked at (default 0)
        encryption: of V and its steps; paillier as in the paper, for a few clients; none only counts BFV's bytes (default 'bfv')
        variant: upload steps of all items, or only what holds listed ones (default 'full')
        num_factors: length of the vectors (default 32)
        num_rounds: rounds (default 20)
        num_negatives: negatives per positive, drawn anew every round (default 4)
        epochs: times that a client goes through its items in a round (default 1)
        participation: share of clients that take part in a round (default 1.0)
        learning_rate: of the vectors of users and items (default 0.001)
        regularization: weight of the vectors' squared norms (default 0.0001)
        initial_scale: vectors start uniformly within plus and minus this (default 0.1)
        from_popularity: count in round 1, encrypted, how many clients have each item, and learn who differs (default False)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "tuned", "general"] | None = None,
        epsilon_total: float = 0.0,
        noise_multiplier: float = 0.0,
        delta: float = 1e-05,
        clip: float = 0.0,
        most_sums: int = 0,
        secure_sums: bool = False,
        secure_masks: Literal["counted", "real"] = "counted",
        secure_corrupted: float = 0.05,
        secure_dropouts: float = 0.1,
        secure_failure: float = 1e-09,
        secure_least: int = 3,
        secure_together: int = 0,
        encryption: Literal["bfv", "paillier", "none"] = "bfv",
        variant: Literal["full", "part"] = "full",
        num_factors: int = 32,
        num_rounds: int = 20,
        num_negatives: int = 4,
        epochs: int = 1,
        participation: float = 1.0,
        learning_rate: float = 0.001,
        regularization: float = 0.0001,
        initial_scale: float = 0.1,
        from_popularity: bool = False,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class FedNCF(Recommender):
    """FedNCF: item vectors and layers averaged, each by what trained it.

    Vasileios Perifanis, Pavlos S. Efraimidis: Federated Neural Collaborative Filtering (Knowledge-Based Systems 2022).

    Settings:
        preset: named settings, of which others may differ: paper, tuned, general; default: general for data of no paper, else paper
        epsilon_total: of a user in all sums of a run, by noise of the clients; 0: no noise (default 0.0)
        noise_multiplier: deviation of the noise of one sum over clip, instead of epsilon_total (default 0.0)
        delta: of epsilon_total; choose it below 1 / clients (default 1e-05)
        clip: l2 norm that a client's numbers of a sum are scaled down to; 0: what suits the system (default 0.0)
        most_sums: sums that a client takes part in at most; 0: those of all rounds (default 0)
        secure_sums: mask what is uploaded, so that the server sees nothing but the sum (default False)
        secure_masks: make the masks, or count their bytes only; audits and deployments always make them (default 'counted')
        secure_corrupted: share of participants that may work together with the server (default 0.05)
        secure_dropouts: share of participants that may be lost after they sent their keys (default 0.1)
        secure_failure: chance that a round's graph does not keep what it promises for these shares (default 1e-09)
        secure_least: participants below which no sum is unmasked (default 3)
        secure_together: clients that are in the same sums at the least, so that sums differ by no fewer; 0: not looked at (default 0)
        secure_least_raters: clients with a row of an item below which it is left out of a sum; 0: none is (default 0)
        secure_count_noise: deviation of the noise in the counts by which items are left out (default 0.0)
        variant: products of vectors, dense layers, or both (default 'neumf')
        num_factors: length of the vectors that are multiplied (default 12)
        layers: inputs of the dense layers, half of them an item's vector, and their outputs (default (48, 24, 12, 6))
        num_rounds: rounds (default 400)
        participation: share of clients that take part in a round; the paper has 20 of 943 and 120 of 6,040 (default 0.02)
        epochs: times that a client goes through its samples in a round (default 2)
        batch_size: samples per step of Adam (default 8)
        num_negatives: negatives per positive, drawn anew every round (default 4)
        learning_rate: of Adam, which starts anew in each round (default 0.001)
        biases: learn a bias of each item, a number more of its vector (default False)
        shrinkage: so many clients who would not move an item count in its mean, beside those who listed it (default 0.0)
        from_popularity: count in round 1 how many clients have each item, and start the biases there (default False)
        rho: virtual samples per sample of a client, among which denoisers hide it (default 0)
        denoisers: clients of a round that collect the noise of others; 0 hides nothing (default 0)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "tuned", "general"] | None = None,
        epsilon_total: float = 0.0,
        noise_multiplier: float = 0.0,
        delta: float = 1e-05,
        clip: float = 0.0,
        most_sums: int = 0,
        secure_sums: bool = False,
        secure_masks: Literal["counted", "real"] = "counted",
        secure_corrupted: float = 0.05,
        secure_dropouts: float = 0.1,
        secure_failure: float = 1e-09,
        secure_least: int = 3,
        secure_together: int = 0,
        secure_least_raters: int = 0,
        secure_count_noise: float = 0.0,
        variant: Literal["gmf", "mlp", "neumf"] = "neumf",
        num_factors: int = 12,
        layers: tuple[int, ...] = (48, 24, 12, 6),
        num_rounds: int = 400,
        participation: float = 0.02,
        epochs: int = 2,
        batch_size: int = 8,
        num_negatives: int = 4,
        learning_rate: float = 0.001,
        biases: bool = False,
        shrinkage: float = 0.0,
        from_popularity: bool = False,
        rho: int = 0,
        denoisers: int = 0,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class MetaMF(Recommender):
    """MetaMF: the server generates every user's recommender.

    Yujie Lin, Pengjie Ren, Zhumin Chen, Zhaochun Ren, Dongxiao Yu, Jun Ma, Maarten de Rijke, X. Cheng: Meta Matrix Factorization for Federated Rating Predictions (SIGIR 2020).

    Settings:
        preset: named settings, of which others may differ: paper, general; default: general for data of no paper, else paper
        num_factors: length of item vectors and of users' vectors (default 32)
        item_memory: item vectors are products of a matrix with this many columns and one with rows (default 8)
        memory_size: columns of the collaborative memory (default 128)
        hidden_size: units of the meta network's hidden layers (default 512)
        num_negatives: drawn items per item of the client (default 4)
        batch_size: clients whose gradients make one step of the server (default 64)
        participation: share of clients that take part in a round (default 1.0)
        num_rounds: rounds; in each, every participant uploads once (default 20)
        learning_rate: of the server's Adam (default 0.0001)
        regularization: weight of the parameters' squared norm, halved (default 0.001)
        from_popularity: count in round 1 how many clients have each item, and learn who differs (default False)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "general"] | None = None,
        num_factors: int = 32,
        item_memory: int = 8,
        memory_size: int = 128,
        hidden_size: int = 512,
        num_negatives: int = 4,
        batch_size: int = 64,
        participation: float = 1.0,
        num_rounds: int = 20,
        learning_rate: float = 0.0001,
        regularization: float = 0.001,
        from_popularity: bool = False,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class NeuMF(Recommender):
    """NeuMF: all items in one place, dense layers.

    Xiangnan He, Lizi Liao, Hanwang Zhang, Liqiang Nie, Xia Hu, Tat-Seng Chua: Neural Collaborative Filtering (WWW 2017).

    Settings:
        preset: named settings, of which others may differ: paper, general; default: general for data of no paper, else paper
        num_factors: length of the vectors (default 32)
        layers: units of the dense layers behind a pair's vectors (default (32, 16))
        start_scale: standard deviation of the vectors before training (default 1.0)
        num_rounds: epochs; chosen on held-out training items of ML-100K (default 50)
        learning_rate: of Adam (default 0.001)
        batch_size: samples per step of Adam (default 1024)
        num_negatives: items drawn in each round for each item of a client (default 4)
        from_popularity: start at how many people have each item, and learn who differs (default False)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "general"] | None = None,
        num_factors: int = 32,
        layers: tuple[int, ...] = (32, 16),
        start_scale: float = 1.0,
        num_rounds: int = 50,
        learning_rate: float = 0.001,
        batch_size: int = 1024,
        num_negatives: int = 4,
        from_popularity: bool = False,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class NGCF(Recommender):
    """NGCF: all items in one place, messages over their graph.

    Xiang Wang, Xiangnan He, Meng Wang, Fuli Feng, Tat-Seng Chua: Neural Graph Collaborative Filtering (SIGIR 2019).

    Settings:
        preset: named settings, of which others may differ: paper, general; default: general for data of no paper, else paper
        num_factors: length of the vectors, in every layer (default 32)
        num_graph_layers: how far messages go (default 3)
        message_dropout: share of a message's numbers that are left out in training (default 0.1)
        num_rounds: epochs; chosen on held-out training items of ML-100K (default 30)
        learning_rate: of Adam (default 0.001)
        batch_size: samples per step of Adam (default 1024)
        num_negatives: items drawn in each round for each item of a client (default 4)
        from_popularity: start at how many people have each item, and learn who differs (default False)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "general"] | None = None,
        num_factors: int = 32,
        num_graph_layers: int = 3,
        message_dropout: float = 0.1,
        num_rounds: int = 30,
        learning_rate: float = 0.001,
        batch_size: int = 1024,
        num_negatives: int = 4,
        from_popularity: bool = False,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class LightGCN(Recommender):
    """LightGCN: all items in one place, means over their graph.

    Xiangnan He, Kuan Deng, Xiang Wang, Yan Li, Yongdong Zhang, Meng Wang: LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation (SIGIR 2020).

    Settings:
        preset: named settings, of which others may differ: paper, general; default: general for data of no paper, else paper
        num_factors: length of the vectors (default 32)
        num_graph_layers: how far messages go (default 3)
        head: how a pair is scored: dense layers or inner product (default 'product')
        layers: units of the dense layers, for the head mlp (default (32, 16))
        num_rounds: epochs; chosen on held-out training items of ML-100K (default 100)
        learning_rate: of Adam (default 0.001)
        batch_size: samples per step of Adam (default 1024)
        num_negatives: items drawn in each round for each item of a client (default 4)
        from_popularity: start at how many people have each item, and learn who differs (default False)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["paper", "general"] | None = None,
        num_factors: int = 32,
        num_graph_layers: int = 3,
        head: Literal["mlp", "product"] = "product",
        layers: tuple[int, ...] = (32, 16),
        num_rounds: int = 100,
        learning_rate: float = 0.001,
        batch_size: int = 1024,
        num_negatives: int = 4,
        from_popularity: bool = False,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class FedCORE(Recommender):
    """FedCORE: organisations train together and serve each other's users.

    Zhitao Li, Xueyang Wu, Weike Pan, Youlong Ding, Zeheng Wu, Shengqi Tan, Qian Xu, Qiang Yang, Zhong Ming: FedCORE: Federated Learning for Cross-Organization Recommendation Ecosystem (TKDE 2024).

    Settings:
        model: pmf, or neucf with its layers (default 'pmf')
        num_rounds: epochs (default 50)
        num_factors: length of vectors; 0: 20 for pmf, 16 in each branch of neucf (default 0)
        batch_size: ratings in a step (default 128)
        learning_rate: of the first round; 0: 0.4 for pmf, 0.15 for neucf (default 0.0)
        decay: of the learning rate after a round; 0: 1 for pmf, 0.9 for neucf (default 0.0)
        regularization: alpha, the weight of the penalty in Eqs. 7 and 9 (pmf) (default 0.0)
        activation: of neucf; relu, the paper's, cannot be encrypted (default 'quadratic')
        privatizer: of gradients for others (default 'none')
        epsilon: of one released row, with dp (default 15.0)
        epsilon_total: of all released rows of a run that a rating or a user is in; 0: as many times epsilon (default 0.0)
        delta: of epsilon_total, and of epsilon with gaussian noise (default 1e-05)
        protects: what epsilon_total is of: a rating, or all that a user has at a partner (default 'rating')
        mechanism: noise, with dp; auto: laplace, as published, but gaussian with epsilon_total (default 'auto')
        clip: of a row's l1 norm (gaussian: l2), with dp; 0: 0.05, but 0.002 with epsilon_total (default 0.0)
        alignment: how common users are found; keyed-hash: its key is public, whoever gets the mail can test ids (default 'psi')
        unaligned: share of the common items that stay unaligned (default 1.0)
        inference: whether visitors are served in the end; auto: ckks, but none for neucf with relu or epsilon_total (default 'auto')
        num_asked: visitors that each partner asks about (default 20)
        query_budget: visitors that a partner answers to another; 0: all (default 0)
        top_k: answer with the places of so many best items only; 0: with scores (default 0)
        inference_noise: scale of Laplace noise on vectors of visitors, which promises nothing: none is clipped (default 0.0)
        inference_epsilon: of the vector of a visitor, clipped and with noise (Eq. 17); 0: without (default 0.0)
        inference_clip: of a vector's l1 norm, with inference_epsilon (default 10.0)
        answer_noise: scale of Laplace noise on scores that are returned (default 0.0)
        prior_seed: public: of what all partners start alike (default 0)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        model: Literal["pmf", "neucf"] = "pmf",
        num_rounds: int = 50,
        num_factors: int = 0,
        batch_size: int = 128,
        learning_rate: float = 0.0,
        decay: float = 0.0,
        regularization: float = 0.0,
        activation: Literal["relu", "quadratic"] = "quadratic",
        privatizer: Literal["none", "dp", "average", "dp+average"] = "none",
        epsilon: float = 15.0,
        epsilon_total: float = 0.0,
        delta: float = 1e-05,
        protects: Literal["rating", "user"] = "rating",
        mechanism: Literal["auto", "laplace", "gaussian"] = "auto",
        clip: float = 0.0,
        alignment: Literal["psi", "keyed-hash"] = "psi",
        unaligned: float = 1.0,
        inference: Literal["auto", "ckks", "none"] = "auto",
        num_asked: int = 20,
        query_budget: int = 0,
        top_k: int = 0,
        inference_noise: float = 0.0,
        inference_epsilon: float = 0.0,
        inference_clip: float = 10.0,
        answer_noise: float = 0.0,
        prior_seed: int = 0,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class NeuCF(Recommender):
    """NeuCF: all ratings in one place, a product and a dense branch.

    Zhitao Li, Xueyang Wu, Weike Pan, Youlong Ding, Zeheng Wu, Shengqi Tan, Qian Xu, Qiang Yang, Zhong Ming: FedCORE: Federated Learning for Cross-Organization Recommendation Ecosystem (TKDE 2024).

    Settings:
        num_factors: length of a vector in each of the two branches (default 16)
        num_rounds: epochs (default 50)
        learning_rate: of the first round; plain gradient descent (default 0.15)
        decay: what the learning rate is multiplied with after a round (default 0.9)
        batch_size: ratings per step (default 128)
        activation: of the hidden layer; quadratic can be computed under encryption (default 'relu')
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        num_factors: int = 16,
        num_rounds: int = 50,
        learning_rate: float = 0.15,
        decay: float = 0.9,
        batch_size: int = 128,
        activation: Literal["relu", "quadratic"] = "relu",
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class Average(Recommender):
    """AvgFilling: the mean of all ratings, the baseline.

    Zhitao Li, Xueyang Wu, Weike Pan, Youlong Ding, Zeheng Wu, Shengqi Tan, Qian Xu, Qiang Yang, Zhong Ming: FedCORE: Federated Learning for Cross-Organization Recommendation Ecosystem (TKDE 2024).

    Settings:
        num_rounds: rounds; after the first nothing changes (default 1)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        num_rounds: int = 1,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class DRIFT(Recommender):
    """DRIFT: data owners learn from encrypted interactions, online.

    Theo Nommay: DRIFT: A Federated Recommender System with Implicit Feedback (Master thesis, Grenoble 2022).

    Settings:
        preset: named settings, of which others may differ: usual, general; default: general for data of no paper, else usual
        num_factors: length of vectors (default 16)
        epochs: how often the stream is learned from (default 3)
        theta: completed blocks of an owner for which it asks for vectors (default 2)
        threshold: what theta counts: blocks, or users with a block each (default 'blocks')
        blocks: whether a positive without a negative before it is dropped, or kept: literal (default 'pairs')
        block_loss: how the losses of a block's pairs make up its loss (default 'mean')
        learning_rate: step size of the gradient descent (default 0.1)
        regularization: weight of the vectors' squared norms (ridge) (default 0.001)
        window: events after which owners see what others learned (default 256)
        open_blocks: what open blocks do between two epochs (default 'go-on')
        max_delay: windows that gradients may be late, at random; 0: in fixed order (default 0)
        encryption: of interactions on their way to owners (default 'aes-gcm')
        flag: where it says whether an interaction is positive (default 'outside')
        batch: interactions that are encrypted together (default 1)
        user_vectors: who holds the vectors of users; the users' side hands them to owners alone, sealed (default 'orchestrator')
        recommended: items recommended to each user of a window while learning (default 0)
        parts: rounds that an epoch is cut into, to go on from after a stop (default 8)
        positive_from: rating from which on an event is good; 0: the middle of the range (default 0.0)
        unseen: items that a user never met, drawn before each good event and taken for bad ones (default 0)
        bias_pace: learn a bias of each item, so much faster than its vector; 0: none (default 0.0)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["usual", "general"] | None = None,
        num_factors: int = 16,
        epochs: int = 3,
        theta: int = 2,
        threshold: Literal["blocks", "users"] = "blocks",
        blocks: Literal["pairs", "literal"] = "pairs",
        block_loss: Literal["mean", "sum"] = "mean",
        learning_rate: float = 0.1,
        regularization: float = 0.001,
        window: int = 256,
        open_blocks: Literal["go-on", "end"] = "go-on",
        max_delay: int = 0,
        encryption: Literal["aes-gcm", "none"] = "aes-gcm",
        flag: Literal["outside", "inside"] = "outside",
        batch: int = 1,
        user_vectors: Literal["orchestrator", "users"] = "orchestrator",
        recommended: int = 0,
        parts: int = 8,
        positive_from: float = 0.0,
        unseen: int = 0,
        bias_pace: float = 0.0,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...

class SAROS(Recommender):
    """SAROS: learning from blocks in one place.

    Aleksandra Burashnikova, Yury Maximov, Marianne Clausel, Charlotte Laclau, Franck Iutzeler, Massih-Reza Amini: Learning over no-Preferred and Preferred Sequence of Items for Robust Recommendation (JAIR 2021).

    Settings:
        preset: named settings, of which others may differ: usual, original, general; default: general for data of no paper, else usual
        num_factors: length of vectors (default 16)
        epochs: how often the stream is learned from (default 7)
        learning_rate: step size of the gradient descent (default 0.1)
        regularization: weight of the vectors' squared norms (ridge) (default 0.001)
        window: events that are sent at once; changes no more than roundings (default 256)
        blocks: whether a positive without a negative before it is dropped, or kept: literal (default 'pairs')
        block_loss: how the losses of a block's pairs make up its loss (default 'mean')
        open_blocks: what open blocks do between two epochs (default 'go-on')
        parts: rounds that an epoch is cut into, to go on from after a stop (default 8)
        recommended: items recommended to each user of a window while learning (default 0)
        positive_from: rating from which on an event is good; 0: the middle of the range (default 0.0)
        unseen: items that a user never met, drawn before each good event and taken for bad ones (default 0)
        bias_pace: learn a bias of each item, so much faster than its vector; 0: none (default 0.0)
        min_blocks: completed blocks that a user must have to be learned from (default 0)
        max_blocks: completed blocks that a user may have to be learned from; 0: any number (default 0)
        padding: pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples of 64 KiB, 256 KiB or 1 MiB (default 'none')
        seed: of everything random (default 0)
        options: threads and the like, which change no number
    """

    def __init__(
        self,
        *,
        preset: Literal["usual", "original", "general"] | None = None,
        num_factors: int = 16,
        epochs: int = 7,
        learning_rate: float = 0.1,
        regularization: float = 0.001,
        window: int = 256,
        blocks: Literal["pairs", "literal"] = "pairs",
        block_loss: Literal["mean", "sum"] = "mean",
        open_blocks: Literal["go-on", "end"] = "go-on",
        parts: int = 8,
        recommended: int = 0,
        positive_from: float = 0.0,
        unseen: int = 0,
        bias_pace: float = 0.0,
        min_blocks: int = 0,
        max_blocks: int = 0,
        padding: Literal["none", "padme", "powers", "64k", "256k", "1m"] = "none",
        seed: int = 0,
        options: RuntimeOptions | None = None,
    ) -> None: ...
