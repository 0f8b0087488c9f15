// summary.json of a run folder.
#pragma once

#include "train/trainer.h"

namespace normscope {

void write_summary(const RunFolder& folder, const RunConfig& config, const RunSummary& summary);

// Seconds that the run took before it was interrupted; 0 where its summary does not say.
double seconds_before(const RunFolder& folder);

}  // namespace normscope
