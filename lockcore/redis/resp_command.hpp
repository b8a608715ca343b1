#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockcore::redis {

/// Formats one Redis command in RESP, argument by argument.
class resp_command {
  public:
    resp_command() { text_.reserve(512); }

    resp_command& arg(std::string_view a) {
        append_header('$', a.size());
        text_ += a;
        text_ += "\r\n";
        ++count_;
        return *this;
    }
    /// Adds one argument of two parts, such as a key of prefix and name.
    resp_command& arg(std::string_view a, std::string_view b) {
        append_header('$', a.size() + b.size());
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

    /// Returns the command with the number of its arguments in front.
    std::string finish() const {
        std::string command = "*" + std::to_string(count_) + "\r\n";
        command += text_;
        return command;
    }

  private:
    void append_header(char type, std::size_t n) {
        text_ += type;
        char digits[20];
        text_.append(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
        text_ += "\r\n";
    }
    std::string text_;
    std::size_t count_ = 0;
};

}  // namespace lockcore::redis
