#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct redisReader;

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

/// A reply of a Redis server.
struct reply {
    enum class kind : std::uint8_t { nil, text, number, error, array };
    kind type = kind::nil;
    std::string text;  ///< Of text (also a status) and error.
    std::int64_t number = 0;
    std::vector<reply> elements;

    bool is_error() const { return type == kind::error; }
};

/// Makes replies of the bytes that a server sends. The server may send anything: a reply of more than elements_max
/// elements or bytes_max bytes, or with a line of more than line_bytes_max, is an error.
///
/// Threads: not safe.
class reply_reader {
  public:
    static constexpr std::size_t elements_max = 100'000;
    static constexpr std::size_t bytes_max = std::size_t{16} << 20;
    /// A status, an error or a number. hiredis looks for the end of an incomplete line from its beginning each time.
    static constexpr std::size_t line_bytes_max = 64'000;

    reply_reader();
    ~reply_reader();
    reply_reader(const reply_reader&) = delete;
    reply_reader& operator=(const reply_reader&) = delete;

    void add(std::string_view bytes);
    /// Returns the next complete reply, valid until the next call; null if more bytes are needed, or after an error.
    const reply* next();
    /// What is wrong with the bytes; empty if nothing is. No reply follows.
    const std::string& error() const { return error_; }

  private:
    struct builder;
    bool has_too_long_line() const;

    std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
    reply current_;  ///< The reply that is being read, or that next() returned. Its memory is used again for the next.
    std::size_t elements_ = 0;  ///< Of current_.
    std::size_t bytes_ = 0;     ///< That were added since the last complete reply.
    std::string error_;
};

}  // namespace lockcore::redis
