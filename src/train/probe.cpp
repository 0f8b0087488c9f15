#include "train/probe.h"

#include "config/dump.h"
#include "kernels/pointwise.h"
#include "logs/record.h"
#include "logs/site_stats.h"
#include "train/checkpoint.h"
#include "train/step.h"

namespace normscope {
namespace {

void add_sites(const char* prefix, const std::vector<SiteCopy<float>>& copies, Index context,
               std::vector<TensorView>& tensors) {
  for (const SiteCopy<float>& copy : copies) {
    tensors.push_back({text(prefix, copy.id.layer, '.', name_of(copy.id.site)),
                       Dtype::F32,
                       {copy.rows / context, context, copy.cols},
                       copy.data.data()});
  }
}

// The exchange file: all that another program needs to recompute the pass, and all numbers to compare.
void write_exchange(const std::string& path, const CheckpointMeta& meta, Index weights_step,
                    Model<float>& model, const Pass& batch) {
  model.gradients.clear();
  SiteCopies<float> sites;
  std::vector<float> logits;
  const auto loss = static_cast<float>(model.loss_and_gradients(batch, 1.0f, &sites, &logits));

  const Index T = batch.context, B = std::ssize(batch.tokens) / T;
  const std::vector<std::int64_t> tokens(batch.tokens.begin(), batch.tokens.end());
  const std::vector<std::int64_t> targets(batch.targets.begin(), batch.targets.end());
  std::vector<TensorView> tensors = {{"tokens", Dtype::I64, {B, T}, tokens.data()},
                                     {"targets", Dtype::I64, {B, T}, targets.data()},
                                     {"logits", Dtype::F32, {B, T, meta.corpus.vocab.size()}, logits.data()},
                                     {"loss", Dtype::F32, {1}, &loss}};
  for (const Parameter& p : model.layout().list()) {
    tensors.push_back({p.name, Dtype::F32, p.shape, model.parameters.at(p)});
    tensors.push_back({"grad." + p.name, Dtype::F32, p.shape, model.gradients.at(p)});
  }
  for (const Parameter& p : model.layout().buffers())
    tensors.push_back({p.name, Dtype::F32, p.shape, model.running.values.data() + p.offset});
  add_sites("act.", sites.values, T, tensors);
  add_sites("act_grad.", sites.gradients, T, tensors);
  write_safetensors(path, tensors, file_metadata(meta, weights_step));
}

}  // namespace

Probed probe(const RunConfig& config, const Corpus& corpus, const ProbeOptions& options, RunFolder& folder) {
  Model<float> model(config.model, corpus.vocab.size(), config.train.gemm_mode());
  if (options.weights) {
    load_model_weights(*options.weights, model);
  } else {
    initialise(config.model, model.layout(), config.train.seed, model.parameters);
  }
  const Index step = options.weights ? step_of(*options.weights) : 0;
  model.branch_progress = config.train.branch_progress(step);
  StepRunner runner(config, model, corpus.train, /*dropout=*/false);
  SiteStatistics statistics(config.model);
  RunRecord record;
  double mean_loss = 0;
  ParameterBuffer<float> mean_gradient(model.layout());
  std::vector<double> mean_norms;                                 // of each part's gradient
  const double share = 1 / static_cast<double>(options.batches);  // of a batch in a mean
  for (Index batch = 1; batch <= options.batches; ++batch) {
    const StepResult& result = runner.compute(batch, &statistics);
    if (!result.finite() && !record.first_nonfinite)
      record.first_nonfinite = first_nonfinite(statistics, result.norms, model.layout(), batch);
    mean_loss += share * static_cast<double>(result.loss);
    axpby(model.layout().padded_size(), static_cast<float>(share), model.gradients.all().data(), 1.0f,
          mean_gradient.all().data());
    mean_norms.resize(result.norms.by_part.size());
    for (std::size_t i = 0; i < mean_norms.size(); ++i) mean_norms[i] += share * result.norms.by_part[i];
  }
  GradientNorms<float> norms(model.layout());
  norms.measure(mean_gradient);
  std::vector<ParameterRow> params = parameter_rows(config.train, model, norms, nullptr);
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].grad_norm_batch = mean_norms[i];
    params[i].update_rms.reset();
  }
  const std::vector<SiteRow> sites = statistics.rows(options.batches);
  write_atomically(folder.file(config_file), dump_text(config));
  LayerLogs(folder).write(0, sites, params, statistics.head_rows());
  if (!options.dump.empty()) {
    runner.fill(1);
    write_exchange(options.dump, {config, corpus}, step, model, runner.last_batch());
  }

  record.status = status_probe;
  record.params = model.layout().count();
  record.vocab = corpus.vocab.size();
  record.corpus_hash = hex(corpus.hash);
  record.final_train_loss = mean_loss;
  record.grad_first_last = grad_first_last(params, config.model.n_layer);
  record.growth = growth(sites);
  record.branch_share = branch_share(sites);
  write_record(folder.file(summary_file), record, config.train);
  return {record, sites};
}

}  // namespace normscope
