// The loss of a model over a text.
#pragma once

#include <span>

#include "data/batches.h"
#include "model/model.h"

namespace normscope {

// Mean loss (nats per character) over the windows' predictions; windows of equal length go batch_size at a
// time.
double evaluate(Model<float>& model, std::span<const Token> text, std::span<const Window> windows,
                Index batch_size);

// Over every character of the text but the first.
double evaluate_whole(Model<float>& model, std::span<const Token> text, Index batch_size);

}  // namespace normscope
