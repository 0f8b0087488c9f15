// A look at a model without training it: one seed's activations and gradients over K batches.
#pragma once

#include "config/run_config.h"
#include "data/corpus.h"
#include "train/divergence.h"
#include "train/run_folder.h"

namespace normscope {

struct ProbeOptions {
  Index batches = 1;    // K: those of steps 1..K
  std::string weights;  // a safetensors file; empty: the initialisation
  std::string dump;     // an exchange file to write of the first batch; empty: none
};

struct ProbeResult {
  double loss = 0;  // mean over the batches
  double grad_first_last = 0, growth = 0;
  Index params = 0, vocab = 0;
  std::optional<FirstNonfinite> first_nonfinite;  // of the batch `step`
};

// The seed is config.train.seed. Writes config.json, layers.csv, params.csv (step 0) and summary.json
// into the folder. Dropout is off.
ProbeResult probe(const RunConfig& config, const Corpus& corpus, const ProbeOptions& options,
                  RunFolder& folder);

}  // namespace normscope
