#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "kernels/bf16.h"
#include "kernels/gemm/schedule.h"
#include "kernels/reference/attention.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// Queries whose scores are one product: the mask hides part of the last so many keys of it. Scores are
// computed transposed, Sᵀ = K Qᵀ: then neighbours in memory are queries, and sums over keys need no sum over
// the lanes of a vector.
constexpr Index query_tile = 16;

// Queries whose weights are kept at a time going backwards: the terms of one visit of dK and dV.
constexpr Index query_block = 4 * query_tile;

const GemmKernel& kernel_of(GemmProvider provider) {
  return provider == GemmProvider::bf16 ? bf16_kernels().gemm : simd_kernels().gemm;
}

float score_scale(const Attention<float>& a) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(a.head_dim())));
}

// Dropout's mask/(1-p) for the tile of queries from `query` on, 0 where nothing is seen; null without
// dropout.
const float* dropout_mask(const Attention<float>& a, Index item, Index query, const CausalTile& tile) {
  if (a.dropout == 0) return nullptr;
  struct Mask;
  const Index size = (tile.n_keys + 1) * tile.stride;
  float* mask = thread_scratch<float, Mask>(size);
  std::fill_n(mask, size, 0.0f);
  const RandomStream stream =
      a.dropout_stream.at(static_cast<std::uint64_t>(a.first_sequence + item / a.heads));
  const float factor = static_cast<float>(1 / (1 - a.dropout));
  for (Index i = 0; i < tile.n_queries; ++i) {
    const Index row = (item % a.heads * a.queries() + query + i) * a.keys();
    for (Index key = 0; key < tile.first_visible + i; ++key) {
      const bool keep = stream.uniform(static_cast<std::uint64_t>(row + key)) >= a.dropout;
      mask[key * tile.stride + i] = keep ? factor : 0;
    }
  }
  return mask;
}

// The scores (n_keys, n_queries) = scale * A B, where A (keys, D) is K or V and B (D, queries) is Qᵀ or dOᵀ,
// read from column `query` on. Whole vectors of queries are written; past the last query, panels of B hold
// zeros.
void multiply_by_queries(const GemmKernel& kernel, const CausalTile& tile, Index head_dim, const PackedA& a,
                         PackedB b, Index query, const TileOutput& out) {
  b = b.from(0, query / kernel.nr);
  b.data += query % kernel.nr;
  const Index columns = std::min(query_tile, block_count(tile.n_queries, kernel.nr) * kernel.nr);
  multiply(kernel, tile.n_keys, columns, head_dim, a, b, out);
}

// Accumulators of a head's products: the destination itself or, if that is bf16, float scratch until store().
struct HeadSums {
  Matrix<float> place, sums;

  Matrix<float> rows(Index first, Index count) const { return sums.block(first, 0, count, sums.cols); }
  void store() const {
    if (place.half != nullptr) to_bf16(sums, place);
  }
};
template <class Tag>
HeadSums head_sums(const Matrix<float>& place) {
  if (place.half == nullptr) return {place, place};
  return {place, {thread_scratch<float, Tag>(place.size()), place.rows, place.cols}};
}

// One head for a single query in float, as decoding has it. It sees every key, and its scores are a row: in a
// column, the other lanes of each vector would be wasted.
void decode_one_query(const GemmKernel& kernel, const Attention<float>& a, Index item) {
  struct Values;
  struct Scores;
  struct Weights;
  const Index keys = a.keys(), head_dim = a.head_dim();
  const Matrix<float> scores(thread_scratch<float, Scores>(keys), 1, keys);
  const Matrix<float> q = a.head(a.q, item), k = a.head(a.k, item);
  kernel.dot_rows(keys, head_dim, q.value, k.value, k.ld, scores.value);
  kernels<float>().axpby(keys, 0.0f, scores.value, score_scale(a), scores.value);
  float max, sum, *p = scores.value;
  kernels<float>().softmax_stats(keys, p, &max, &sum);
  kernels<float>().add_exponentials(keys, p, max, 1 / sum, p, 0);
  multiply(kernel, 1, head_dim, keys, packed_a<Weights>(kernel, scores),
           packed_b<Values>(kernel, a.head(a.v, item)), {1, 0, a.head(a.out, item)});
}

// What the softmax of a tile told of its queries. With s = S - max S and l = sum_j e^(s_j), the entropy of a
// query's weights is log l - sum_j P_j s_j. One logarithm is taken of all the l, which are at most n_keys.
HeadStats stats_of(const CausalTile& tile) {
  HeadStats stats;
  double sums = 1;
  for (Index i = 0; i < tile.n_queries; ++i) {
    stats.max_logit = std::max(stats.max_logit, double{tile.stats.max[i]});
    stats.entropy -= double{tile.mean_score[i]};
    stats.first_share += double{tile.first_weight[i]};
    sums *= double{tile.stats.sum[i]};
  }
  stats.queries = tile.n_queries;
  stats.entropy += std::log(sums);
  return stats;
}

void forward_of_head(const GemmKernel& kernel, const Attention<float>& a, Index item) {
  struct Queries;
  struct Keys;
  struct Values;
  struct Scores;
  struct Outputs;
  const Index n_queries = a.queries(), n_keys = a.keys(), head_dim = a.head_dim();
  const PackedB queries = packed_b<Queries>(kernel, a.head(a.q, item).t());
  const PackedA keys = packed_a<Keys>(kernel, a.head(a.k, item));
  const PackedB values = packed_b<Values>(kernel, a.head(a.v, item));
  const HeadSums out = head_sums<Outputs>(a.head(a.out, item));
  constexpr Index stride = query_tile;
  float* scores = thread_scratch<float, Scores>((n_keys + 1) * stride);
  HeadStats stats;
  for (Index t = 0; t < n_queries; t += query_tile) {
    const Index rows = std::min(query_tile, n_queries - t), visible = n_keys - n_queries + t + 1;
    float row_stats[4][query_tile];
    CausalTile tile{rows, visible, visible + rows - 1, stride, nullptr, {row_stats[0], row_stats[1]}};
    if (a.stats.max != nullptr) tile.stats = a.stats.from(item * n_queries + t);
    if (a.head_stats != nullptr) tile.mean_score = row_stats[2], tile.first_weight = row_stats[3];
    multiply_by_queries(kernel, tile, head_dim, keys, queries, t,
                        {score_scale(a), 0, {scores, tile.n_keys, rows, stride}});
    tile.dropout_mask = dropout_mask(a, item, t, tile);
    kernel.causal_softmax(tile, scores);
    if (a.head_stats != nullptr) stats += stats_of(tile);
    multiply(kernel, rows, head_dim, tile.n_keys, {scores, stride, true}, values, {1, 0, out.rows(t, rows)});
  }
  out.store();
  if (a.head_stats != nullptr) a.head_stats[item] = stats;
}

// One head going backwards, a block of queries at a time from the last to the first.
class BackwardOfHead {
 public:
  BackwardOfHead(const GemmKernel& kernel, const Attention<float>& attention,
                 const AttentionGradients<float>& d, Index item)
      : kernel_(kernel),
        a_(attention),
        item_(item),
        scale_(score_scale(attention)),
        beta_(d.beta),
        queries_t_(packed_b<struct QueriesT>(kernel, a_.head(a_.q, item).t())),
        out_grads_t_(packed_b<struct OutGradsT>(kernel, a_.head(d.out, item).t())),
        queries_(packed_b<struct Queries>(kernel, a_.head(a_.q, item))),
        out_grads_(packed_b<struct OutGrads>(kernel, a_.head(d.out, item))),
        keys_a_(packed_a<struct KeysA>(kernel, a_.head(a_.k, item))),
        values_a_(packed_a<struct ValuesA>(kernel, a_.head(a_.v, item))),
        keys_(packed_b<struct Keys>(kernel, a_.head(a_.k, item))),
        dq_(head_sums<struct QuerySums>(a_.head(d.q, item))),
        dk_(head_sums<struct KeySums>(a_.head(d.k, item))),
        dv_(head_sums<struct ValueSums>(a_.head(d.v, item))),
        weights_(thread_scratch<float, struct Weights>((a_.keys() + 1) * stride_)),
        grads_(thread_scratch<float, struct Grads>((a_.keys() + 1) * stride_)),
        grads_t_(thread_scratch<float, struct GradsT>(kernel.packed(a_.keys()) * stride_)) {}

  void run() const {
    float beta = beta_;  // the last block sees every key, so going backwards its products may overwrite
    for (Index block = block_count(a_.queries(), query_block) - 1; block >= 0; --block, beta = 1) {
      const Index begin = block * query_block, end = std::min(begin + query_block, a_.queries());
      for (Index t = begin; t < end; t += query_tile) {
        query_gradients(begin, t, std::min(query_tile, end - t));
      }
      key_gradients(begin, end, beta);
    }
    for (const HeadSums* sums : {&dq_, &dk_, &dv_}) sums->store();
  }

 private:
  // P and dS of the queries from t on, into their columns of the block that starts at `begin`; dQ = dS K.
  void query_gradients(Index begin, Index t, Index rows) const {
    CausalTile tile{rows, t + 1, t + rows, stride_, nullptr, a_.stats.from(item_ * a_.queries() + t)};
    float *p = weights_ + t - begin, *dp = grads_ + t - begin;
    const Index head_dim = a_.head_dim(), column = (t - begin) / kernel_.k_pack;
    multiply_by_queries(kernel_, tile, head_dim, keys_a_, queries_t_, t,
                        {scale_, 0, {p, tile.n_keys, rows, stride_}});
    multiply_by_queries(kernel_, tile, head_dim, values_a_, out_grads_t_, t,
                        {1, 0, {dp, tile.n_keys, rows, stride_}});
    tile.dropout_mask = dropout_mask(a_, item_, t, tile);
    float* grads_t = kernel_.k_pack == 1 ? dp : grads_t_;
    kernel_.causal_softmax_backward(tile, {p, dp, weights_ + column, grads_ + column, grads_t});
    multiply(kernel_, rows, head_dim, tile.n_keys, {grads_t, stride_, true}, keys_,
             {scale_, beta_, dq_.rows(t, rows)});
  }

  // dV += (P∘M)ᵀ dO and dK += dSᵀ Q of the block's queries: first the keys that all tiles of the block see,
  // then those that fewer and fewer do.
  void key_gradients(Index begin, Index end, float beta) const {
    const PackedA weights{weights_, stride_, false}, grads{grads_, stride_, false};
    for (Index key = 0, rows = 0; key < end; key += rows) {
      const Index first = std::max(begin, key), count = end - first;  // queries that see such a key
      rows = std::min(first + query_tile, end) - key;
      const Index column = (first - begin) / kernel_.k_pack, step = first / kernel_.k_pack;
      multiply(kernel_, rows, a_.head_dim(), count, weights.from(key, column), out_grads_.from(step, 0),
               {1, beta, dv_.rows(key, rows)});
      multiply(kernel_, rows, a_.head_dim(), count, grads.from(key, column), queries_.from(step, 0),
               {scale_, beta, dk_.rows(key, rows)});
    }
  }

  const GemmKernel& kernel_;
  const Attention<float>& a_;
  Index item_;
  Index stride_ = scratch_stride<float>(query_block);
  float scale_, beta_;
  PackedB queries_t_, out_grads_t_, queries_, out_grads_;
  PackedA keys_a_, values_a_;
  PackedB keys_;
  HeadSums dq_, dk_, dv_;
  float *weights_, *grads_, *grads_t_;
};

}  // namespace

void attention_forward(GemmProvider provider, const Attention<float>& a) {
  const GemmKernel& kernel = kernel_of(provider);
  const bool decodes = a.queries() == 1 && a.stats.max == nullptr && a.head_stats == nullptr &&
                       a.dropout == 0 && a.q.half == nullptr;
  parallel_for(a.sequences * a.heads, [&](Index item) {
    decodes ? decode_one_query(kernel, a, item) : forward_of_head(kernel, a, item);
  });
}

void attention_backward(GemmProvider provider, const Attention<float>& a,
                        const AttentionGradients<float>& d) {
  const GemmKernel& kernel = kernel_of(provider);
  parallel_for(a.sequences * a.heads, [&](Index item) { BackwardOfHead(kernel, a, d, item).run(); });
}

void attention_forward(GemmProvider, const Attention<double>& a) { reference::attention_forward(a); }
void attention_backward(GemmProvider, const Attention<double>& a, const AttentionGradients<double>& d) {
  reference::attention_backward(a, d);
}

}  // namespace normscope
