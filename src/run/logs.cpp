#include "run/logs.h"

#include "core/parallel.h"
#include "core/text.h"

namespace normscope {

LayerLogs::LayerLogs(const RunFolder& folder, std::optional<Index> last_step)
    : layers(
          folder.file(layers_file),
          split("step,layer,site,mean,rms,abs_max,nonfinite,grad_rms,grad_abs_max,grad_norm,grad_nonfinite,"
                "branch_share"),
          last_step),
      params(folder.file(params_file),
             split("step,layer,param,numel,rms,grad_norm,grad_norm_batch,grad_rms,update_rms"), last_step),
      heads(folder.file(heads_file), split("step,layer,head,max_logit,entropy,first_share"), last_step) {}

void LayerLogs::write(Index step, const std::vector<SiteRow>& sites,
                      const std::vector<ParameterRow>& parameters, const std::vector<HeadRow>& head_rows) {
  parallel_for(3, [&](Index log) {  // their text is a sixth of the cost of logging
    if (log == 0) {
      for (const SiteRow& s : sites)
        layers.row(step, s.place.layer, name_of(s.place.site), s.mean, s.rms, s.abs_max, s.nonfinite,
                   s.grad_rms, s.grad_abs_max, s.grad_norm, s.grad_nonfinite, s.branch_share);
      layers.flush();
    } else if (log == 1) {
      for (const ParameterRow& p : parameters)
        params.row(step, p.layer, p.param, p.numel, p.rms, p.grad_norm, p.grad_norm_batch, p.grad_rms,
                   p.update_rms);
      params.flush();
    } else {
      for (const HeadRow& h : head_rows)
        heads.row(step, h.layer, h.head, h.max_logit, h.entropy, h.first_share);
      heads.flush();
    }
  });
}

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step) {
  constexpr const char* columns =
      "step,tokens,train_loss,val_loss,lr,grad_norm,clip_factor,step_ms,tokens_per_s";
  return CsvWriter(folder.file(metrics_file), split(columns), last_step);
}

void write_metrics(CsvWriter& csv, const MetricsRow& row) {
  csv.row(row.step, row.tokens, row.train_loss, row.val_loss, row.lr, row.grad_norm, row.clip_factor,
          row.step_ms, row.tokens_per_s);
  csv.flush();
}

}  // namespace normscope
