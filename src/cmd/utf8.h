#pragma once
// Text from a model comes token by token, and a token may end in the middle of a character. This holds back what is not
// a whole character yet, so that what is printed so far is always valid wherever the model's output is. Pure; one object
// per stream.

#include <string>
#include <string_view>

namespace linkcpp::cmd {

class Utf8Stream {
  public:
    /// Adds bytes and returns what can be printed now. Bytes that can never become a character pass through at once.
    std::string add(std::string_view bytes);
    /// The rest at the end of the text, complete or not.
    std::string finish();

  private:
    std::string held_;
};

}  // namespace linkcpp::cmd
