// The record of a run: summary.json, which `compare` reads, and the figures in it.
//
// record_fields() is the one table of what a record holds: summary.json and the columns of `compare` follow
// from it. A new figure is a member of RunRecord and a row of the table.
#pragma once

#include <variant>

#include "config/run_config.h"
#include "run/logs.h"

namespace normscope {

inline constexpr const char *status_done = "done", *status_diverged = "diverged",
                            *status_interrupted = "interrupted", *status_probe = "probe",
                            *status_unfinished = "unfinished";

// The first tensor of a diverged step that was not finite: a site, or a parameter's gradient.
struct FirstNonfinite {
  Index step = 0, layer = 0;
  std::string site, param;  // one of the two
  bool in_gradient = false;
};

struct RunRecord {
  std::string folder;
  RunConfig config;

  std::string status;  // one of the above
  Index steps = 0;     // finished updates; 0 here and below: unknown
  Index params = 0, vocab = 0;
  std::optional<double> final_train_loss, final_val_loss, best_val_loss;  // nats
  std::optional<Index> best_step;
  std::optional<double> grad_first_last, growth;  // see below
  std::optional<double> branch_share;             // at step 1; see below
  // Losses (nats) of n-gram models on the validation split (data/ngram.h).
  std::optional<double> unigram, bigram, trigram, four_gram;
  Index skipped = 0;  // updates, by on_nonfinite: skip
  std::optional<double> seconds, tokens_per_s, peak_rss_mb;
  Index ranks = 1, threads = 0;  // threads: of the first rank
  std::string precision, gemm, blas_flavour, blas_version, blas_kernel, cpu, isa, compiler, libc, version,
      commit;
  std::string trajectory_hash;
  std::string corpus_hash;                        // of the bytes of its texts; empty: unknown
  std::optional<FirstNonfinite> first_nonfinite;  // of a diverged run, as is the story
  std::string story;                              // one line: what broke, what had grown
};

struct RecordField {
  using Member =
      std::variant<std::optional<double> RunRecord::*, std::optional<Index> RunRecord::*, Index RunRecord::*,
                   std::string RunRecord::*, std::optional<FirstNonfinite> RunRecord::*>;
  const char* key;  // in summary.json; blas/kernel is `kernel` of the object `blas`
  Member member;
  bool trained = false;    // only in summaries of trained runs, not in a probe's
  bool nonfinite = false;  // only in summaries of runs with a non-finite tensor
};

const std::vector<RecordField>& record_fields();  // in the order of summary.json

// summary.json, with null for figures that the run does not have.
void write_record(const Destination& to, const RunRecord& run);

// Sets the fields that the file holds with a valid value. False: the file is no JSON object.
bool read_record(const std::string& path, RunRecord& run);

// The record of a run from its folder. If the logs go beyond the summary, the run is going on or was killed:
// its status is "unfinished" and its figures are those of the logs. Errors: the folder is no run (usage), its
// config or summary is damaged.
RunRecord read_run(const std::string& folder);

// The run folders of an argument: the folder itself, or the runs in it, in the order of a sweep's
// summary.csv, then by name, L=2 before L=12.
std::vector<std::string> run_folders(const std::string& argument);

// --- figures, computed from rows of the logs ---

// ||gradient of block 1's parameters|| / ||block L's||.
double grad_first_last(const std::vector<ParameterRow>& rows, Index n_layer);

// rms of stream L / rms of stream 0.
double growth(const std::vector<SiteRow>& rows);

// rms of a branch (attn_out, ffn_out) / rms of the stream that it is added to, mean over all branches;
// nothing if there are none or the mean is not finite.
std::optional<double> branch_share(const std::vector<SiteRow>& rows);

// Whether the branch_share at the start is so small that the norms' place can hardly matter. False if the
// placement itself sets the size of the branches by a norm, a learned scale or the init.
bool branches_too_small(const ModelConfig& config, double share);

}  // namespace normscope
