// Headers that are precompiled for the gateway's units (see CMakeLists.txt). No unit may depend on it: each includes
// what it uses.
#pragma once

#include <spdlog/spdlog.h>
#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <pqxx/pqxx>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#if FMT_VERSION < 100000
// libfmt has this instance, but its header does not declare it: without this each unit that logs compiles fmt again.
extern template void fmt::detail::vformat_to(fmt::detail::buffer<char>&, fmt::basic_string_view<char>,
                                             fmt::basic_format_args<fmt::buffer_context<char>>,
                                             fmt::detail::locale_ref);
#endif
