// summary.json of a run folder.
#pragma once

#include "train/probe.h"
#include "train/trainer.h"

namespace normscope {

void write_summary(const RunFolder& folder, const RunConfig& config, const RunSummary& summary);

// Of one seed of a probe. Its loss, over training batches, stands as final_train_loss; nothing was validated.
void write_probe_summary(const RunFolder& folder, const RunConfig& config, const ProbeResult& result);

// For a run that begins, or goes on (`resumed`): its summary, if there is one, may tell of no end, lest a
// kill leave it taken for finished with its logs cut. Of a resumed run it then says interrupted; else it is
// removed. Returns the seconds that the run took before; 0 where the summary does not say.
double reopen_summary(const RunFolder& folder, bool resumed);

}  // namespace normscope
