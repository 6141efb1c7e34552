extern "C" int packaged_number();
extern "C" int packaged_sum() {
  return packaged_number() + 1;
}
