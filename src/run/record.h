// The record of a run: summary.json, which `compare` and `sweep` read.
//
// record_fields() is the one table of what a record holds. The writer and the reader of summary.json loop
// over it, and so do the columns of `compare` and those of a sweep's summary.csv:
//     for (const RecordField& column : compare_columns()) print(column.compare.title, column.figure());
//     for (const RecordField& column : sweep_columns()) add_cell(rows, column, run);
// A new figure is a member of RunRecord and a row of the table.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/run_config.h"
#include "io/csv.h"

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
  Index steps = 0;     // finished updates; 0 here and below: not known
  Index params = 0, vocab = 0;
  std::optional<double> final_train_loss, final_val_loss, best_val_loss;  // nats
  std::optional<Index> best_step;
  std::optional<double> grad_first_last, growth;  // see figures.h
  std::optional<double> branch_share;             // at step 1; see figures.h
  std::optional<double> unigram;  // nats: what counting characters achieves on the validation split
  Index skipped = 0;              // updates, by on_nonfinite: skip
  std::optional<double> seconds, tokens_per_s, peak_rss_mb;
  Index ranks = 1, threads = 0;  // threads: of the first rank
  std::string precision, gemm, blas_flavour, blas_version, blas_kernel, cpu, isa, compiler, libc, version,
      commit;
  std::string trajectory_hash;
  std::string corpus_hash;  // of the bytes of its texts; empty: not known
  std::optional<FirstNonfinite> first_nonfinite;  // of a diverged run, as is the story
  std::string story;                              // one line: what broke, what had grown
};

enum class Digits { loss, ratio, speed };  // how a figure is printed

struct RecordField {
  using Figure = std::optional<double> RunRecord::*;
  using Member = std::variant<Figure, std::optional<Index> RunRecord::*, Index RunRecord::*,
                              std::string RunRecord::*, std::optional<FirstNonfinite> RunRecord::*>;
  struct CompareColumn {
    int place = 0;  // from 1; 0: none
    const char* title = nullptr;
    Digits digits = Digits::loss;
  };

  const char* key;  // in summary.json; blas/kernel is `kernel` of the object `blas`
  Member member;
  bool trained = false;     // of trained runs alone: a probe's summary does without
  bool nonfinite = false;   // of runs that met a tensor that is not finite: other summaries do without
  int sweep = 0;            // place in a sweep's summary.csv, from 1; 0: none
  CompareColumn compare{};  // in the table of `compare`: figures only

  Figure figure() const { return std::get<Figure>(member); }
};

// In the order of summary.json, of a sweep's summary.csv and of the table of `compare`.
const std::vector<RecordField>& record_fields();
const std::vector<RecordField>& sweep_columns();
const std::vector<RecordField>& compare_columns();

// Appends the field's value, which is no first_nonfinite.
void add_cell(CsvRows& row, const RecordField& field, const RunRecord& run);

// summary.json, with null for figures that the run does not have.
void write_record(const std::string& path, const RunRecord& run);

// Sets the fields that the file has, and that are what they should be. False: the file holds no JSON object.
bool read_record(const std::string& path, RunRecord& run);

}  // namespace normscope
