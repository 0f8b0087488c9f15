#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/portable_math.h"
#include "kernels/gemm/schedule.h"
#include "kernels/reference/kernels.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// Queries per tile: 16, or for long sequences a panel of the GEMM kernel, 32 with AVX-512. No bit depends on
// it. Scores are computed transposed (Sᵀ = K Qᵀ): softmax then reduces down columns, without horizontal sums.
// With 16 queries, only the last 15 keys of a tile are masked for some of them.
constexpr Index max_query_tile = 32;
Index query_tile(const GemmKernel<float>& kernel, Index n_keys) {
  constexpr Index many_keys = 256;  // fewer do not repay the masked scores of larger tiles
  return std::clamp<Index>(n_keys < many_keys ? 16 : kernel.nr, 16, max_query_tile);
}

// Queries per block of the backward, which updates dK and dV once a block.
constexpr Index query_block = 64;

// A head's operand of products: the matrix itself, or a copy in this thread's scratch named by Tag. A copy is
// rounded if products have operands in bf16. In float32 heads of long sequences are copied: their rows, which
// lie far apart, fall into few sets of the L2 cache, where the copy has room.
template <class Tag>
Matrix<float> operand(const Attention<float>& a, const Matrix<float>& x, Index item) {
  constexpr Index max_extent = 128 * 1024;  // numbers from a head's first row to its last
  const Matrix<float> head = a.head(x, item);
  const bool rounds = a.precision == Precision::bf16;
  if (!rounds && head.rows * head.ld < max_extent) return head;
  struct Copy;
  const Matrix<float> copy(thread_scratch<float, Copy>(head.size()), head.rows, head.cols);
  if (rounds) {
    simd_kernels().round_to_bf16(head.rows, head.cols, head.data, head.ld, copy.data, copy.ld);
  } else {
    for (Index i = 0; i < head.rows; ++i) {
      std::copy_n(head.data + i * head.ld, head.cols, copy.data + i * copy.ld);
    }
  }
  return copy;
}

float score_scale(const Attention<float>& a) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(a.head_dim())));
}

// The dropout mask over 1-p for the tile of queries from `query` on, 0 where the causal mask hides a key;
// null without dropout.
const float* dropout_mask(const Attention<float>& a, Index item, Index query, const CausalTile& tile) {
  if (a.dropout == 0) return nullptr;
  struct Mask;
  const Index size = tile.n_keys * tile.stride;
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

// A tile's product A B of all queries: K Qᵀ for its scores, V dOᵀ for its dP. A is (keys, D), and B (D,
// queries) has the tile's queries from column `query` on. `out` is (n_keys, n_queries);
// whole vectors are written, which go past n_queries, as B's panels are padded with zeros.
void multiply_tile(const GemmKernel<float>& kernel, const CausalTile& tile, const Matrix<float>& a,
                   OperandB<float> b, Index query, const TileOutput& out) {
  b = b.from(0, query / kernel.nr);
  b.data += query % kernel.nr;
  const Index lanes = kernel.nr / 2, columns = block_count(tile.n_queries, lanes) * lanes;
  gemm_in_thread(kernel, tile.n_keys, columns, a.cols, read_in_place(a), b, out);
}

// Add the head statistics of a tile: max logit, entropy log l - sum_j P_j s_j with s = S - max S and l =
// sum_j e^(s_j), weight of key 0. For 16 queries at a time the sum of the log l is taken as one logarithm of
// their product, which cannot overflow, as l <= n_keys.
void add_stats(const CausalTile& tile, HeadStats& total) {
  constexpr Index queries_per_log = 16;  // with every instruction set, so that all have the same digits
  for (Index first = 0; first < tile.n_queries; first += queries_per_log) {
    HeadStats stats;
    stats.queries = std::min(queries_per_log, tile.n_queries - first);
    double sums = 1;
    for (Index i = first; i < first + stats.queries; ++i) {
      stats.max_logit = std::max(stats.max_logit, double{tile.stats.max[i]});
      stats.entropy -= double{tile.mean_score[i]};
      stats.first_share += double{tile.first_weight[i]};
      sums *= double{tile.stats.sum[i]};
    }
    stats.entropy += portable::log(sums);
    total += stats;
  }
}

void forward_of_head(const Attention<float>& a, Index item) {
  const GemmKernel<float>& kernel = simd_kernels().gemm;
  const Index n_queries = a.queries(), n_keys = a.keys(), head_dim = a.head_dim();
  const OperandB<float> queries =
      pack_or_read_in_place<struct PackedQueries>(kernel, operand<struct Queries>(a, a.q, item).t());
  const Matrix<float> keys = operand<struct Keys>(a, a.k, item);
  const OperandB<float> values =
      pack_or_read_in_place<struct PackedValues>(kernel, operand<struct Values>(a, a.v, item));
  const Matrix<float> out = a.head(a.out, item);
  const Index stride = query_tile(kernel, n_keys);
  float* scores = thread_scratch<float, struct Scores>(n_keys * stride);
  HeadStats stats;
  for (Index t = 0; t < n_queries; t += stride) {
    const Index rows = std::min(stride, n_queries - t), visible = n_keys - n_queries + t + 1;
    float row_stats[4][max_query_tile];
    CausalTile tile{rows, visible, visible + rows - 1, stride, nullptr, {row_stats[0], row_stats[1]}};
    if (a.stats.max != nullptr) tile.stats = a.stats.from(item * n_queries + t);
    if (a.head_stats != nullptr) tile.mean_score = row_stats[2], tile.first_weight = row_stats[3];
    multiply_tile(kernel, tile, keys, queries, t, {score_scale(a), 0, {scores, tile.n_keys, rows, stride}});
    tile.dropout_mask = dropout_mask(a, item, t, tile);
    tile.in_bf16 = a.precision == Precision::bf16;
    simd_kernels().causal_softmax(tile, scores);
    if (a.head_stats != nullptr) add_stats(tile, stats);
    gemm_in_thread(kernel, rows, head_dim, tile.n_keys, OperandA<float>{scores, stride, true}, values,
                   {1, 0, out.part(t, 0, rows, head_dim)});
  }
  if (a.head_stats != nullptr) a.head_stats[item] = stats;
}

// The backward of one head, a block of queries at a time from the last to the first.
class BackwardOfHead {
 public:
  BackwardOfHead(const Attention<float>& attention, const AttentionGradients<float>& d, Index item)
      : a_(attention), d_(d), item_(item) {}

  void run() const {
    float beta = d_.beta;  // the last block sees every key, so its products come first and may overwrite
    for (Index block = block_count(a_.queries(), query_block) - 1; block >= 0; --block, beta = 1) {
      const Index begin = block * query_block, end = std::min(begin + query_block, a_.queries());
      for (Index t = begin; t < end; t += query_tile_) {
        query_gradients(begin, t, std::min(query_tile_, end - t));
      }
      key_and_value_gradients(begin, end, beta);
    }
  }

 private:
  // P∘M and dS of the queries from t on, into their columns of the block that starts at `begin`; dQ = dS K.
  void query_gradients(Index begin, Index t, Index rows) const {
    CausalTile tile{rows, t + 1, t + rows, stride_, nullptr, a_.stats.from(item_ * a_.queries() + t)};
    float *p = weights_ + t - begin, *ds = grads_ + t - begin;
    multiply_tile(kernel_, tile, k_, queries_t_, t, {scale_, 0, {p, tile.n_keys, rows, stride_}});
    multiply_tile(kernel_, tile, v_, out_grads_t_, t, {1, 0, {ds, tile.n_keys, rows, stride_}});
    tile.dropout_mask = dropout_mask(a_, item_, t, tile);
    tile.in_bf16 = a_.precision == Precision::bf16;
    simd_kernels().causal_softmax_backward(tile, p, ds);
    gemm_in_thread(kernel_, rows, a_.head_dim(), tile.n_keys, OperandA<float>{ds, stride_, true}, keys_,
                   {scale_, d_.beta, dq_.part(t, 0, rows, a_.head_dim())});
  }

  // dV += (P∘M)ᵀ dO and dK += dSᵀ Q of the block's queries `begin` to `end`. With tiles of 16 queries:
  //
  //   keys before begin + 16       one product with all 64 queries; masked entries of P and dS are 0
  //   the next 16 keys             one product with the 48 queries that see any of them
  //   the next 16, the last 16     products with 32 and 16 queries
  void key_and_value_gradients(Index begin, Index end, float beta) const {
    const OperandA<float> weights{weights_, stride_, false}, grads{grads_, stride_, false};
    const Index head_dim = a_.head_dim();
    for (Index key = 0, rows = 0; key < end; key += rows) {
      const Index first = std::max(begin, key), count = end - first;  // the queries that see these keys
      rows = std::min(first + query_tile_, end) - key;
      gemm_in_thread(kernel_, rows, head_dim, count, weights.from(key, first - begin),
                     out_grads_.from(first, 0), {1, beta, dv_.part(key, 0, rows, head_dim)});
      gemm_in_thread(kernel_, rows, head_dim, count, grads.from(key, first - begin), queries_.from(first, 0),
                     {scale_, beta, dk_.part(key, 0, rows, head_dim)});
    }
  }

  const GemmKernel<float>& kernel_ = simd_kernels().gemm;
  const Attention<float>& a_;
  const AttentionGradients<float>& d_;
  Index item_;
  Index query_tile_ = query_tile(kernel_, a_.keys());
  Index stride_ = scratch_stride<float>(query_block);
  float scale_ = score_scale(a_);
  Matrix<float> q_ = operand<struct Queries>(a_, a_.q, item_), k_ = operand<struct Keys>(a_, a_.k, item_);
  Matrix<float> v_ = operand<struct Values>(a_, a_.v, item_);
  Matrix<float> d_out_ = operand<struct OutGrads>(a_, d_.out, item_);
  OperandB<float> queries_t_ = pack_or_read_in_place<struct PackedQueriesT>(kernel_, q_.t());
  OperandB<float> out_grads_t_ = pack_or_read_in_place<struct PackedOutGradsT>(kernel_, d_out_.t());
  OperandB<float> queries_ = pack_or_read_in_place<struct PackedQueries>(kernel_, q_);
  OperandB<float> out_grads_ = pack_or_read_in_place<struct PackedOutGrads>(kernel_, d_out_);
  OperandB<float> keys_ = pack_or_read_in_place<struct PackedKeys>(kernel_, k_);
  Matrix<float> dq_ = a_.head(d_.q, item_), dk_ = a_.head(d_.k, item_), dv_ = a_.head(d_.v, item_);
  float* weights_ = thread_scratch<float, struct Weights>(a_.keys() * stride_);
  float* grads_ = thread_scratch<float, struct Grads>(a_.keys() * stride_);
};

}  // namespace

void attention_forward(const Attention<float>& a) {
  parallel_for(a.sequences * a.heads, [&](Index item) { forward_of_head(a, item); });
}

void attention_backward(const Attention<float>& a, const AttentionGradients<float>& d) {
  parallel_for(a.sequences * a.heads, [&](Index item) { BackwardOfHead(a, d, item).run(); });
}

void attention_forward(const Attention<double>& a) { reference::attention_forward(a); }
void attention_backward(const Attention<double>& a, const AttentionGradients<double>& d) {
  reference::attention_backward(a, d);
}

}  // namespace normscope
