// The loss of a model over a text.
#pragma once

#include <span>

#include "data/batches.h"
#include "dist/communicator.h"
#include "model/model.h"

namespace normscope {

// Mean loss (nats per character) over batches * batch_size whole windows, evenly spaced; with 0 batches over
// every character of the text but the first. Windows of equal length go batch_size at a time; ranks share
// them.
double evaluate(Model<float>& model, std::span<const Token> text, Index batch_size, Index batches = 0,
                Communicator& ranks = one_rank());

}  // namespace normscope
