// The resolved config of an experiment: what `normscope config FILE` prints and config.json of a run holds.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace normscope {

enum class OptimizerKind { adamw, sgd };
enum class ScheduleKind { cosine, linear, constant };
enum class Precision { fp32, bf16 };
enum class GemmChoice { automatic, openblas, native };
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
  double beta1 = 0.9;
  double beta2 = 0.99;
  double adam_eps = 1e-8;
  double momentum = 0.0;
  double weight_decay = 0.1;  // tensors of rank >= 2
  double grad_clip = 1.0;     // 0: off
  Precision precision = Precision::fp32;
  GemmChoice gemm = GemmChoice::automatic;
  Index threads = 0;  // 0: by trial, up to OMP_NUM_THREADS, else usable_cores()
  OnNonfinite on_nonfinite = OnNonfinite::stop;
};

struct EvalConfig {
  Index every = 250;   // 0: only at the end
  Index batches = 20;  // 0: the whole split
};

struct LogConfig {
  Index every = 10;
  Index layers_every = 10;  // 0: off
};

struct CheckpointConfig {
  Index every = 250;  // 0: only at the end and when interrupted
};

struct RunConfig {
  std::string name;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  EvalConfig eval;
  LogConfig log;
  CheckpointConfig checkpoint;
};

}  // namespace normscope
