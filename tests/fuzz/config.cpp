// Configuration files. The file is in a folder of its own, with a key of 32 bytes beside it.
#include "fuzz.hpp"

#include <gateway/config/config.hpp>

#include <lockcore/types.hpp>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fencegate::fuzz {
namespace {

constexpr std::string_view secret = "SECRET-OF-THE-TEST-0123456789-ab";

/// The folder of the configuration; the destructor removes it. The environment has nothing but a signing key.
class folder {
  public:
    folder() {
        std::string name = (std::filesystem::temp_directory_path() / "fencegate-fuzz-XXXXXX").string();
        require(::mkdtemp(name.data()) != nullptr, "the target has a folder");
        path_ = name;
        ::clearenv();
        ::setenv("FENCEGATE_SIGNING_KEY", std::string(secret).c_str(), 1);
        std::ofstream(path_ / "key") << secret;
    }
    ~folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::filesystem::path write(std::string_view text) const {
        const auto file = path_ / "fencegate.yaml";
        std::ofstream(file, std::ios::binary) << text;
        return file;
    }

  private:
    std::filesystem::path path_;
};

void check_bounds(const config& cfg) {
    const auto& http = cfg.http;
    require(http.threads >= 1 && http.threads <= 64, "http.threads is within its bounds");
    require(http.body_max_bytes >= 1 << 10 && http.body_max_bytes <= 64 << 20,
            "http.body_max_bytes is within its bounds");
    require(http.header_max_bytes >= 1 << 10 && http.header_max_bytes <= 1 << 20,
            "http.header_max_bytes is within its bounds");
    require(http.allowed_hosts.size() <= 100, "the number of allowed hosts is bounded");
    require(cfg.protocol.validate().empty(), "the rules of the lock protocol hold");
    require(cfg.protocol.nodes.size() <= lockcore::nodes_max, "the number of nodes is bounded");
    require(cfg.lease.signing_key.size() >= 32, "the signing key is long enough");
    require(cfg.postgres.lock_timeout <= cfg.postgres.statement_timeout, "lock_timeout ends a wait first");
}

}  // namespace

void run_input(std::string_view input) {
    static const folder files;
    // A file that the operator names may be a device that never ends or answers.
    if (input.find("/dev") != std::string_view::npos || input.find("/proc") != std::string_view::npos) return;
    const auto file = files.write(input);
    config_faults faults;
    const config cfg = load_config(file, faults);
    for (const std::string& fault : faults) {
        require(fault.find(": ") != std::string::npos, "a fault has a path and says what is wrong");
        require(input.find(secret) != std::string_view::npos || fault.find(secret) == std::string::npos,
                "no fault contains a secret");
    }
    if (faults.empty()) check_bounds(cfg);
    config_faults again;
    load_config(file, again);
    require(faults == again, "the same file has the same faults");
}

}  // namespace fencegate::fuzz
