#include "tests/text/folder_matrix.h"

namespace pd {
namespace {

TEST(FolderMatrix, EveryFolderEqualsAutoTokenizer) { FolderMatrix().Run(0, 1); }

}  // namespace
}  // namespace pd
