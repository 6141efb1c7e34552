extern "C" int packaged_number() {
  return 7;
}
