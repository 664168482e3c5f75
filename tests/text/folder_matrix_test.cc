// A sample of the folders; folder_matrix_long_test.cc has them all.
#include "tests/text/folder_matrix.h"

namespace pd {
namespace {

TEST(FolderMatrix, ASampleEqualsAutoTokenizer) { FolderMatrix().Run(7, 61); }

}  // namespace
}  // namespace pd
