#include <gtest/gtest.h>

#include "base/error.h"
#include "mlx/mlx_device.h"

namespace pd {
namespace {

TEST(MlxAbsent, SaysHowToGetIt) {
  const MlxStatus status = GetMlxStatus();
  EXPECT_EQ(status.backend, "off");
  EXPECT_FALSE(status.usable);
  Weights<TensorView> tensors;
  try {
    LoadMlxModel({}, tensors);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_EQ(status.problem, e.what());
    EXPECT_NE(status.problem.find("PD_MLX"), std::string::npos);
  }
}

}  // namespace
}  // namespace pd
