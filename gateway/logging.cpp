#include <gateway/logging.hpp>

#include <gateway/runtime/printable.hpp>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>

#include <memory>
#include <string_view>

namespace fencegate {
namespace {

/// Formats the message as a JSON string with its quotes; spdlog's %v escapes nothing.
class json_message final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
        const std::string text = boost::json::serialize(
            boost::json::string(std::string_view(message.payload.data(), message.payload.size())));
        out.append(text.data(), text.data() + text.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<json_message>(); }
};

/// Formats the message as plain text that can't control a terminal: it may have what a node or a caller sent.
class plain_message final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
        const std::string text = runtime::make_printable({message.payload.data(), message.payload.size()});
        out.append(text.data(), text.data() + text.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<plain_message>(); }
};

}  // namespace

void start_logging(const log_config& cfg) {
    auto logger = std::make_shared<spdlog::logger>("fencegate", std::make_shared<spdlog::sinks::stdout_sink_mt>());
    logger->flush_on(spdlog::level::info);
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    if (cfg.json) {
        formatter->add_flag<json_message>('*').set_pattern(
            R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","thread":%t,"message":%*})");
    } else {
        formatter->add_flag<plain_message>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %l %*");
    }
    logger->set_formatter(std::move(formatter));
    spdlog::set_default_logger(std::move(logger));
    set_log_level(cfg.level);
}

void set_log_level(const std::string& level) {
    spdlog::default_logger_raw()->set_level(spdlog::level::from_str(level));
}

}  // namespace fencegate
