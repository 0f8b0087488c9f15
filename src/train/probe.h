// Measures a model without training it: one seed's activations and gradients over K batches.
#pragma once

#include <string>

#include "config/run_config.h"
#include "data/corpus.h"
#include "logs/record.h"
#include "logs/run_folder.h"
#include "train/checkpoint.h"

namespace normscope {

struct ProbeOptions {
  Index batches = 1;  // K: the batches of steps 1..K
  // Weights that require_weights() has passed; nullptr: the initialisation.
  const SafetensorsFile* weights = nullptr;
  std::string dump = "";  // the exchange file to write for the first batch; empty: none
};

struct Probed {
  RunRecord record;  // final_train_loss: the batches' mean; step of first_nonfinite: the batch
  std::vector<SiteRow> sites;
};

// Writes config.json, layers.csv, params.csv, heads.csv (step 0) and summary.json into the folder and returns
// the record in summary.json and the rows of layers.csv. The seed is config.train.seed. Dropout is off.
Probed probe(const RunConfig& config, const Corpus& corpus, const ProbeOptions& options, RunFolder& folder);

}  // namespace normscope
