#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencegate::pg {

/// Builds the text of an array parameter, element by element.
class array_text {
  public:
    void add_null() { begin("NULL"); }

    /// Adds the text without U+0000, which PostgreSQL's texts can't contain.
    void add(std::string_view item) {
        begin("\"");
        for (const char c : item) {
            if (c == '\0') continue;
            if (c == '"' || c == '\\') text_ += '\\';
            text_ += c;
        }
        text_ += '"';
        all_null_ = false;
    }

    void add_or_null(const std::optional<std::string>& item) { item ? add(std::string_view(*item)) : add_null(); }

    /// Adds the text, or NULL where it is empty.
    void add_unless_empty(std::string_view item) { item.empty() ? add_null() : add(item); }

    template <std::integral Integer>
    void add(Integer item) {
        std::array<char, 24> digits{};
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), item).ptr;
        begin({digits.data(), static_cast<std::size_t>(end - digits.data())});
        all_null_ = false;
    }

    /// Returns the text of the array. At least one element must have been added.
    std::string take() { return std::move(text_) + '}'; }

    /// Returns the text of the array; empty if every element is NULL.
    std::optional<std::string> take_unless_null() { return all_null_ ? std::nullopt : std::optional(take()); }

  private:
    void begin(std::string_view element) {
        text_ += text_.empty() ? '{' : ',';
        text_ += element;
    }

    std::string text_;
    bool all_null_ = true;
};

}  // namespace fencegate::pg
