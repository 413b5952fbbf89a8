"""Outbound wire: follower to leader, controller to broker, leader to controller, coordinator to leader."""
