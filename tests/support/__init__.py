"""What tests share: the judges and the directories they write."""
