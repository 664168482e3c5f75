// Runs of a program with what they must give, as cases.py writes them.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/files.h"
#include "base/json.h"
#include "coreml/interpreter/interpreter.h"

namespace pd::test {

struct CaseResult {
  mil::Dims shape;
  std::vector<double> values;
  double rtol = 0, atol = 0;
};
struct CaseRun {
  std::string function;
  InputTensors inputs;
  std::map<std::string, CaseResult> results;
};

class Cases {
 public:
  Cases(const std::filesystem::path& folder, const std::string& name)
      : bytes_(ReadTextFile(folder / (name + ".bin"))) {
    const SortedJson json = ParseSortedJson(ReadTextFile(folder / (name + ".json")), name);
    for (const auto& run : json.at("runs")) {
      CaseRun& read = runs_.emplace_back();
      read.function = run.at("function").get<std::string>();
      for (const auto& [key, value] : run.at("inputs").items()) {
        const auto dtype = TypeOf(value.at("type").template get<std::string>());
        read.inputs[key] = {{dtype, value.at("shape").template get<mil::Dims>()},
                            {},
                            Data(value.at("offset").template get<size_t>())};
      }
      for (const auto& [key, value] : run.at("results").items()) {
        CaseResult& result = read.results[key];
        result.shape = value.at("shape").template get<mil::Dims>();
        result.rtol = value.at("rtol").template get<double>();
        result.atol = value.at("atol").template get<double>();
        result.values.resize(size_t(mil::Elements({mil::DataType::kF64, result.shape})));
        std::memcpy(result.values.data(), Data(value.at("offset").template get<size_t>()),
                    result.values.size() * sizeof(double));
      }
    }
  }
  Cases(const Cases&) = delete;
  Cases& operator=(const Cases&) = delete;

  const std::vector<CaseRun>& runs() const { return runs_; }

 private:
  static mil::DataType TypeOf(const std::string& name) {
    if (name == "float16") return mil::DataType::kF16;
    if (name == "float32") return mil::DataType::kF32;
    if (name == "int32") return mil::DataType::kI32;
    throw std::logic_error("no such type: " + name);
  }
  const std::byte* Data(size_t offset) const {
    return reinterpret_cast<const std::byte*>(bytes_.data()) + offset;
  }

  std::string bytes_;
  std::vector<CaseRun> runs_;
};

inline std::vector<double> Numbers(const OutputTensor& tensor) {
  const mil::Value value{tensor.type, *tensor.bytes};
  std::vector<double> numbers;
  if (mil::IsFloat(tensor.type.dtype))
    for (float v : mil::ReadFloats(value)) numbers.push_back(double(v));
  else
    for (int64_t v : mil::ReadInts(value)) numbers.push_back(double(v));
  return numbers;
}

// NaN agrees with NaN, infinity with itself; other numbers within |got - want| <= atol + rtol * |want|.
inline void ExpectResult(const OutputTensor& tensor, const CaseResult& want, const std::string& name) {
  EXPECT_EQ(tensor.type.shape, want.shape) << name;
  const std::vector<double> got = Numbers(tensor);
  ASSERT_EQ(got.size(), want.values.size()) << name;
  int wrong = 0;
  for (size_t i = 0; i < got.size() && wrong < 3; ++i) {
    const double g = got[i], w = want.values[i];
    const bool same = std::isnan(w)   ? std::isnan(g)
                      : std::isinf(w) ? g == w
                                      : std::fabs(g - w) <= want.atol + want.rtol * std::fabs(w);
    wrong += !same;
    if (!same) ADD_FAILURE() << name << "[" << i << "] is " << g << ", must be " << w;
  }
}

}  // namespace pd::test
