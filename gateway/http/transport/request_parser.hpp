#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include <string>
#include <string_view>

namespace fencegate::http {

/// Fills a `request` from the bytes of a connection. Derives from Beast's parser, so that fields are copied once.
///
/// Beyond what Beast refuses, it refuses what makes the end or the target of a message ambiguous: a Transfer-Encoding
/// other than chunked, no Host or two (HTTP/1.1), a repeated field that may be given only once. Trailers are dropped,
/// because they arrive after the head was checked.
///
/// Limits: http.header_max_bytes and http.header_fields_max, trailers included; the extensions of all chunks together
///         have at most header_max_bytes too.
class request_parser : public boost::beast::http::basic_parser<true> {
  public:
    explicit request_parser(const http_config& cfg);

    /// Parses what has arrived of a request and takes it out of the buffer; what may follow the request stays there.
    ///
    /// Errors: those of Beast, and bad_field with a `fault()`. While more bytes are needed, there is none.
    void read(boost::beast::flat_buffer& arrived, boost::beast::error_code& ec);

    request message;            ///< Valid once is_done(); the dispatcher sets further members.
    std::string authorization;  ///< Not among the message's headers.
    std::string x_api_key;
    std::string host;  ///< From an absolute request target, else from Host; empty if HTTP/1.0 has neither.

    /// Returns why the parser refused the request; empty if the error is Beast's.
    std::string_view fault() const { return fault_; }
    /// Returns the header that was refused because it was given more than once; empty: there is none.
    std::string_view repeated_field() const { return repeated_field_; }
    bool exceeded_header_limit() const { return exceeded_header_limit_; }
    bool expects_continue() const { return expects_continue_; }
    bool http_1_0() const { return version_ == 10; }

  private:
    using error_code = boost::beast::error_code;
    using string_view = boost::beast::string_view;
    std::size_t put(boost::asio::const_buffer bytes, error_code& ec);
    void on_request_impl(boost::beast::http::verb, string_view method_text, string_view target, int version,
                         error_code& ec) override;
    void on_response_impl(int, string_view, int, error_code&) override {}
    void on_field_impl(boost::beast::http::field name, string_view name_text, string_view value,
                       error_code& ec) override;
    void on_header_impl(error_code& ec) override;
    void on_body_init_impl(const boost::optional<std::uint64_t>& content_length, error_code& ec) override;
    std::size_t on_body_impl(string_view body, error_code& ec) override;
    void on_chunk_header_impl(std::uint64_t, string_view extensions, error_code& ec) override;
    std::size_t on_chunk_body_impl(std::uint64_t remain, string_view body, error_code& ec) override;
    void on_finish_impl(error_code&) override {}

    void refuse(std::string_view detail, error_code& ec);
    void refuse_repeated(std::string_view field, error_code& ec);

    const std::size_t header_max_bytes_, header_fields_max_;
    std::string fault_, repeated_field_;
    std::size_t fields_ = 0, extension_bytes_ = 0;
    bool exceeded_header_limit_ = false;
    bool absolute_target_ = false;
    int version_ = 11;
    unsigned hosts_ = 0;
    bool header_over_ = false;
    bool expects_continue_ = false;
};

/// Returns why the parser has refused the bytes that it was given, from the error that it returned.
failure make_parse_failure(const request_parser& parser, const boost::system::error_code& ec,
                           const http_config& config);

}  // namespace fencegate::http
