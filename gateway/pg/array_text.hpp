#pragma once

#include <optional>
#include <string>
#include <utility>

namespace fencegate::pg {

/// The text of an array parameter, element by element.
class array_text {
  public:
    void add(const std::optional<std::string>& item) {
        text_ += text_.empty() ? '{' : ',';
        if (!item) {
            text_ += "NULL";
            return;
        }
        text_ += '"';
        for (const char c : *item) {
            if (c == '"' || c == '\\') text_ += '\\';
            text_ += c;
        }
        text_ += '"';
    }

    /// At least one element was added.
    std::string take() { return std::move(text_) + '}'; }

  private:
    std::string text_;
};

}  // namespace fencegate::pg
