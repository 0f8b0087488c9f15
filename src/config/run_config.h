// The resolved config of an experiment: what `normscope config FILE` prints and config.json of a run holds.
#pragma once

#include <algorithm>
#include <limits>
#include <string>

#include "core/types.h"
#include "model/config.h"

namespace normscope {

enum class OptimizerKind { adamw, sgd, muon };
enum class ScheduleKind { cosine, linear, constant, wsd };
enum class OnNonfinite { stop, skip };

struct DataConfig {
  std::vector<std::string> path;  // UTF-8 files, absolute, read one after another
  double val_fraction = 0.1;      // the tail of the text
  std::string val_path;           // empty: the tail is the validation split
};

struct TrainConfig {
  Index steps = 0;
  Index batch_size = 0;
  Index grad_accum = 1;
  Index seed = 1;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double lr = 1e-3;
  double min_lr = 1e-4;
  ScheduleKind schedule = ScheduleKind::cosine;
  Index warmup_steps = 0;
  double cooldown = 0.2;          // wsd: the share of the steps after the warm-up in which the rate falls
  Index branch_warmup_steps = 0;  // 0: off
  bool fixed_batch = false;       // every step's batch is that of step 1
  double beta1 = 0.9;
  double beta2 = 0.99;
  double adam_eps = 1e-8;
  double momentum = 0.0;
  double weight_decay = 0.1;  // tensors of rank >= 2
  double grad_clip = 1.0;     // 0: off
  Precision precision = Precision::fp32;
  GemmProvider gemm = GemmProvider::automatic;
  Index threads = 0;  // 0: by trial, up to default_thread_count()
  OnNonfinite on_nonfinite = OnNonfinite::stop;

  GemmMode gemm_mode() const { return {gemm, precision}; }

  // Pass::branch_progress of a step, before the first that of the first; infinity without branch warm-up.
  // Training and its evaluations take it of the current step (Trainer::compute; after a resume Trainer::begin,
  // for an evaluation that is still due); eval, sample and probe of the step of the weights that they load
  // (load_model, probe), and `check` of TestModel's. Transformer's block() applies it.
  double branch_progress(Index step) const {
    if (branch_warmup_steps == 0) return std::numeric_limits<double>::infinity();
    return static_cast<double>(std::max<Index>(1, step)) / static_cast<double>(branch_warmup_steps);
  }
};

struct EvalConfig {
  Index every = 250;   // 0: only at the end
  Index batches = 20;  // 0: the whole split

  // The number of batches in each evaluation that best_val_loss compares. If the only evaluation is the one
  // at the end, it is 0: the whole split.
  Index compared_batches() const { return every > 0 ? batches : 0; }
};

struct LogConfig {
  Index every = 10;
  Index layers_every = 10;  // 0: off
  Index layers_first = 10;
};

struct CheckpointConfig {
  Index every = 250;     // 0: only at the end and when interrupted
  Index keep_every = 0;  // 0: keeps none

  // Whether the weights after a step stay as a file of their own: of step 0, powers of two and multiples.
  bool keeps(Index step) const {
    const bool is_power_of_two = (step & (step - 1)) == 0;  // and 0
    return keep_every > 0 && (is_power_of_two || step % keep_every == 0);
  }
};

struct Pattern;

struct RunConfig {
  std::string name;
  ModelConfig model;
  const Pattern* pattern = nullptr;  // the name by which the config gives the list of placements; null: none
  double mix_post_fraction = 0.25;
  DataConfig data;
  TrainConfig train;
  EvalConfig eval;
  LogConfig log;
  CheckpointConfig checkpoint;

  Index tokens_per_step() const { return train.grad_accum * train.batch_size * model.context; }
};

// --- the names of enum values, as configs, folders and tables write them, in the order of the values ---

using Names = std::vector<const char*>;

// The names of a table's rows, in the order of their kinds.
template <class Row>
Names names_of_rows(std::span<const Row> table) {
  Names names(table.size());
  for (const Row& row : table) names[static_cast<std::size_t>(row.kind)] = row.name;
  return names;
}

inline Names enum_names(NormKind) { return names_of_rows(norm_table()); }
inline Names enum_names(PlacementKind) { return names_of_rows(placement_table()); }
inline Names enum_names(Activation) { return {"relu", "gelu", "gelu_tanh", "silu", "swiglu", "relu2"}; }
inline Names enum_names(Position) { return {"learned", "rope", "sinusoidal", "none"}; }
inline Names enum_names(InitScheme) { return {"gpt2", "xavier_normal", "xavier_uniform", "kaiming_normal"}; }
inline Names enum_names(OptimizerKind) { return {"adamw", "sgd", "muon"}; }
inline Names enum_names(ScheduleKind) { return {"cosine", "linear", "constant", "wsd"}; }
inline Names enum_names(LearnedScale) { return {"none", "scalar", "vector"}; }
inline Names enum_names(Precision) { return {"fp32", "bf16"}; }
inline Names enum_names(GemmProvider) { return {"auto", "openblas", "native"}; }
inline Names enum_names(OnNonfinite) { return {"stop", "skip"}; }

// name_of(NormKind::layernorm) is "layernorm".
template <class Enum>
const char* name_of(Enum value) {
  return enum_names(value).at(static_cast<std::size_t>(value));
}

}  // namespace normscope
