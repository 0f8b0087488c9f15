// A look at a model without training it: one seed's activations and gradients over K batches.
#pragma once

#include <string>

#include "config/run_config.h"
#include "data/corpus.h"
#include "run/folder.h"
#include "run/record.h"

namespace normscope {

struct ProbeOptions {
  Index batches = 1;    // K: those of steps 1..K
  std::string weights;  // a safetensors file; empty: the initialisation
  std::string dump;     // an exchange file to write of the first batch; empty: none
};

// The seed is config.train.seed. Writes config.json, layers.csv, params.csv, heads.csv (step 0) and
// summary.json into the folder and returns the latter: its loss over the training batches stands as
// final_train_loss, as nothing was validated; first_nonfinite is of the batch `step`. Dropout is off.
RunRecord probe(const RunConfig& config, const Corpus& corpus, const ProbeOptions& options,
                RunFolder& folder);

}  // namespace normscope
