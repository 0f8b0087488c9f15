// What enters the first block.
#pragma once

#include "theory/head.h"

namespace normscope {

// Embeddings of tokens, and of positions where they are learned, have this variance a feature. Kernels are of
// one sequence or of two.
Signal embedded(const ModelConfig& config, double variance, const TextStatistics& text, Index sequences);

}  // namespace normscope
