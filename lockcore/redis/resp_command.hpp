#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockcore::redis {

/// Writes one Redis command in RESP, argument by argument, into one string. The number of arguments is set at the end.
class resp_command {
  public:
    resp_command() { text_.reserve(512); }

    resp_command& arg(std::string_view a) {
        head('$', a.size());
        text_ += a;
        text_ += "\r\n";
        ++count_;
        return *this;
    }
    /// An argument of two pieces, such as a key of prefix and name.
    resp_command& arg(std::string_view a, std::string_view b) {
        head('$', a.size() + b.size());
        text_ += a;
        text_ += b;
        text_ += "\r\n";
        ++count_;
        return *this;
    }
    resp_command& arg(std::uint64_t number) {
        char digits[20];
        const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
        return arg(std::string_view(digits, static_cast<std::size_t>(end - digits)));
    }
    resp_command& arg(std::string_view prefix, std::uint64_t number) {
        char digits[20];
        const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
        return arg(prefix, std::string_view(digits, static_cast<std::size_t>(end - digits)));
    }

    /// The whole command.
    std::string finish() const {
        std::string whole = "*" + std::to_string(count_) + "\r\n";
        whole += text_;
        return whole;
    }

  private:
    void head(char type, std::size_t n) {
        text_ += type;
        char digits[20];
        text_.append(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
        text_ += "\r\n";
    }
    std::string text_;
    std::size_t count_ = 0;
};

}  // namespace lockcore::redis
