#pragma once
// Files for tests: a folder that goes with the test, whole files in and out.

#include "base/bytes.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace linkcpp::test {

class TempFolder {
  public:
    TempFolder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "linkcpp-test-XXXXXX").string();
        path_ = mkdtemp(pattern.data());
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    const std::string& path() const { return path_; }
    size_t n_files() const {
        return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
    }

  private:
    std::string path_;
};

inline void write_file(const std::string& path, ByteSpan bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

inline Bytes read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(in), {});
}

inline uint64_t allocated_bytes(const std::string& path) {
    struct stat stat {};
    return ::stat(path.c_str(), &stat) == 0 ? static_cast<uint64_t>(stat.st_blocks) * 512 : 0;
}

/// The real model that lies in the repository.
inline std::string capitals_model() { return LINKCPP_SOURCE_DIR "/models/capitals-moe-qwen35moe-Q4_K_M.gguf"; }

}  // namespace linkcpp::test
