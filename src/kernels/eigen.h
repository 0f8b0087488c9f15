// Eigenvalues of symmetric matrices.
#pragma once

#include <vector>

#include "core/types.h"

namespace normscope {

// Eigenvalues of the symmetric matrix a (n, n), ascending, by the calling thread. `a` is overwritten, with
// its unit eigenvectors as rows if they are wanted. Error: LAPACK does not converge, as for a matrix of NaN.
std::vector<double> eigenvalues(Index n, double* a, bool want_vectors);

}  // namespace normscope
